//! Has libbpf read the kernel's types once for all objects (crates/probes/src/btf/parsed_once.rs).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--wrap=btf__load_vmlinux_btf");
}
