//! Compiles every `src/*/*.bpf.c` to an object, and generates the shared types from the BTF of `shared.bpf.c`.

use std::{env, error::Error, ffi::OsString, fs, path::Path};

use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let machine = env::var("CARGO_CFG_TARGET_ARCH")?;
    let arch = match machine.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => return Err(format!("no BPF register layout known for {other}").into()),
    };
    // Where Debian keeps the kernel's headers of an architecture: its own, and those that a cross compiler brings
    let headers = [format!("/usr/include/{machine}-linux-gnu"), format!("/usr/{machine}-linux-gnu/include")];
    let arguments: Vec<OsString> = [
        format!("-D__TARGET_ARCH_{arch}").as_str(),
        "-mcpu=v3",
        "-Wall",
        "-Werror",
        "-Wno-missing-declarations",
        "-I",
        &headers[0],
        "-I",
        &headers[1],
    ]
    .map(OsString::from)
    .to_vec();
    println!("cargo:rerun-if-changed=src");
    for folder in fs::read_dir("src")? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(folder)? {
            let source = file?.path();
            let Some(name) = source.file_name().and_then(|name| name.to_str()?.strip_suffix(".bpf.c")) else {
                continue;
            };
            let object = Path::new(&out).join(format!("{name}.bpf.o"));
            let mut builder = SkeletonBuilder::new();
            builder.source(&source).obj(&object).clang_args(&arguments).build()?;
            if name == "shared" {
                builder.generate(Path::new(&out).join("shared.skel.rs"))?;
            }
        }
    }
    Ok(())
}
