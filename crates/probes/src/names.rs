//! What the numbers in the pinned histograms' keys mean, for programs that have no table of ours: the map `operation_names`.

use libbpf_rs::{MapCore, MapFlags};
use model::Operation;

use crate::{
    generated::{Plain, named_operation},
    shared::MAX_OPERATIONS,
    spec::Spec,
};

/// Writes the name of every operation of every probe.
pub(crate) fn write(map: &impl MapCore) -> libbpf_rs::Result<()> {
    for spec in crate::specs().filter(|spec| spec.is_first()) {
        for operation in spec.protocol.all_operations() {
            let index = index(spec, operation).to_ne_bytes();
            map.update(&index, name(operation).as_bytes(), MapFlags::ANY)?;
        }
    }
    Ok(())
}

fn index(spec: &Spec, operation: Operation) -> u32 {
    spec.id.0 * MAX_OPERATIONS as u32 + u32::from(operation.code())
}

fn name(operation: Operation) -> named_operation {
    named_operation { probe: text(operation.protocol().name), operation: text(operation.name()) }
}

/// As C has it: ends with a zero.
pub(crate) fn text<const LENGTH: usize>(text: &str) -> [i8; LENGTH] {
    let mut out = [0; LENGTH];
    let room = LENGTH.saturating_sub(1);
    out.iter_mut().zip(text.bytes().take(room)).for_each(|(to, from)| *to = from.cast_signed());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_fits() {
        let read = |text: &[i8]| -> String {
            text.iter().take_while(|byte| **byte != 0).map(|byte| char::from(byte.cast_unsigned())).collect()
        };
        for operation in crate::protocols().flat_map(model::Protocol::all_operations) {
            let name = name(operation);
            assert_eq!(read(&name.probe), operation.protocol().name);
            assert_eq!(read(&name.operation), operation.name());
        }
    }
}
