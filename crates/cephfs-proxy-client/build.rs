//! Gives the library the name that Samba asks for: `dlopen("libcephfs_proxy.so.2")`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcephfs_proxy.so.2");
    // Unloading the library would be fatal: a thread of it may run, and fork handlers point to its code.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
