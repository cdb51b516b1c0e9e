//! Compiles every `src/*/*.bpf.c` to an object, generates the shared types from the BTF of `shared.bpf.c`, and lists the names of all
//! types that the objects have, for src/btf/named.rs.

use std::{collections::BTreeSet, env, error::Error, ffi::OsString, fs, path::Path};

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::btf::{Btf, BtfType, TypeId, types::Enum};

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
    let mut names = BTreeSet::new();
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
            let types = Btf::from_path(&object)?;
            let all = (1..=types.len())
                .filter_map(|id| types.type_by_id::<BtfType<'_>>(TypeId::from(u32::try_from(id).ok()?)));
            // What follows three underscores tells definitions of one kernel type from each other.
            let of_kernel = |name: &str| name.split("___").next().unwrap_or_default().to_owned();
            for one in all {
                names.extend(one.name().and_then(|name| name.to_str()).map(of_kernel));
                // Whose number is read (TYPE_ID of bpf/fields.h), the object may not name otherwise.
                let numbers =
                    Enum::try_from(one).ok().filter(|one| one.name().is_some_and(|name| name == "plumbline_type_ids"));
                let read = numbers
                    .iter()
                    .flat_map(|numbers| numbers.iter().filter_map(|one| one.name?.to_str()?.strip_prefix("TYPE_ID_")));
                names.extend(read.map(of_kernel));
            }
            if name == "shared" {
                builder.generate(Path::new(&out).join("shared.skel.rs"))?;
            }
        }
    }
    fs::write(Path::new(&out).join("type_names.txt"), names.into_iter().collect::<Vec<_>>().join("\n"))?;
    Ok(())
}
