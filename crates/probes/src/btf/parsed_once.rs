//! libbpf reads all types of the kernel anew for each object that it loads: a hundred thousand, to find the functions that programs are attached to.
//! libbpf has no interface to pass the types in. So the linker replaces `btf__load_vmlinux_btf` by the function here (`--wrap`, build.rs of the
//! program).

use std::{cell::Cell, marker::PhantomData, ptr};

use libbpf_rs::libbpf_sys::{btf, btf__free, btf__new_empty_split, btf__parse};

thread_local! {
    static PARSED: Cell<Parsed> = const { Cell::new(Parsed::ForEach) };
}

/// How this thread reads the types.
#[derive(Clone, Copy)]
enum Parsed {
    ForEach,
    /// The types, read once; null before that.
    Once(*mut btf),
}

/// While this lives, libbpf reads the kernel's types on this thread at most once. Objects that libbpf has loaded need them no longer.
pub(crate) struct ParsedOnce(PhantomData<*mut btf>);

impl ParsedOnce {
    pub fn on_this_thread() -> Self {
        PARSED.set(Parsed::Once(ptr::null_mut()));
        // This reference keeps the linker from leaving the function out.
        std::hint::black_box(__wrap_btf__load_vmlinux_btf as extern "C" fn() -> *mut btf);
        Self(PhantomData)
    }
}

impl Drop for ParsedOnce {
    fn drop(&mut self) {
        if let Parsed::Once(types) = PARSED.replace(Parsed::ForEach) {
            // SAFETY: what `__wrap_btf__load_vmlinux_btf` has read, or null. What was made on top of it is freed: libbpf does so before the end of
            // the loading, and `kernel.rs` keeps none.
            unsafe { btf__free(types) };
        }
    }
}

/// `btf__load_vmlinux_btf`: the kernel's types, to be freed by the caller; null, and errno, if they cannot be read.
#[unsafe(no_mangle)]
extern "C" fn __wrap_btf__load_vmlinux_btf() -> *mut btf {
    // SAFETY: a path, and no place for what kernels do not have (`btf_ext`).
    let read = || unsafe { btf__parse(c"/sys/kernel/btf/vmlinux".as_ptr(), ptr::null_mut()) };
    let Parsed::Once(mut types) = PARSED.get() else { return read() };
    if types.is_null() {
        types = read();
        PARSED.set(Parsed::Once(types));
    }
    if types.is_null() {
        return types;
    }
    // Types on top of those, of which there are none: to free them does not free those.
    // SAFETY: they live as long as `ParsedOnce`.
    unsafe { btf__new_empty_split(types) }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::libbpf_sys::btf__type_cnt;

    use super::*;

    #[test]
    fn types_are_read_once_while_it_lives() {
        if !std::path::Path::new(crate::btf::KERNEL).exists() {
            eprintln!("skipped: this kernel does not describe its types");
            return;
        }
        // SAFETY: for types that are not freed yet.
        let count = |types| unsafe { btf__type_cnt(types) };
        // SAFETY: likewise.
        let free = |types| unsafe { btf__free(types) };
        let read = || PARSED.get();
        let all = {
            let _once = ParsedOnce::on_this_thread();
            let (first, second) = (__wrap_btf__load_vmlinux_btf(), __wrap_btf__load_vmlinux_btf());
            let Parsed::Once(parsed) = read() else { panic!("nothing is kept") };
            assert!(first != second && parsed != first && parsed != second);
            let all = [count(parsed), count(first), count(second)];
            free(first);
            free(second);
            assert_eq!(all, [count(parsed); 3]);
            all[0]
        };
        assert!(matches!(read(), Parsed::ForEach));
        let alone = __wrap_btf__load_vmlinux_btf();
        assert_eq!(count(alone), all);
        free(alone);
    }
}
