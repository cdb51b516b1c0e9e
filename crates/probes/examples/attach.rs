//! Loads a BPF object with maps of another program in the place of its own, and attaches its programs until standard input ends:
//! `attach OBJECT NAME=ID...`. For bench/own-cost.

use std::{error::Error, io::Read as _, os::fd::AsFd as _};

use libbpf_rs::{MapHandle, ObjectBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: attach OBJECT NAME=ID...")?;
    let mut object = ObjectBuilder::default().open_file(path)?;
    for argument in arguments {
        let (name, id) = argument.split_once('=').ok_or("a map is NAME=ID")?;
        let map = MapHandle::from_map_id(id.parse()?)?;
        let named = object.maps_mut().find(|map| map.name() == name);
        named.ok_or("the object has no map of this name")?.reuse_fd(map.as_fd())?;
    }
    let object = object.load()?;
    let links = object.progs_mut().map(|program| program.attach()).collect::<Result<Vec<_>, _>>()?;
    println!("attached {}", links.len());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
