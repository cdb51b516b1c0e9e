//! Gives the library the name that Samba asks for: `dlopen("libcephfs_proxy.so.2")`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcephfs_proxy.so.2");
    // A thread of ours may be in its code, and fork handlers lead there: unloading it would be fatal.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
