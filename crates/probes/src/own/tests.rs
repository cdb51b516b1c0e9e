//! Resolved definitions on this kernel, and the messages for definitions that cannot be resolved.

use std::rc::Rc;

use super::{
    definition::{At, Definition, OwnHook, ValueSource},
    resolve::{MissingInKernel, plan},
    ways::AttachWay,
};
use crate::btf::Types;
use crate::generated::{own_from, own_plan};

/// `None` where this kernel has no types.
fn kernel(test: &str) -> Option<Rc<Types>> {
    let types = Types::of_kernel();
    if types.is_err() {
        eprintln!("SKIP {test}: this kernel has no BTF");
    }
    types.ok()
}

fn at<T>(value: T) -> At<T> {
    At { value, line: 3, column: 7 }
}

/// Reading a file, with these values.
fn reading(set: impl Fn(&mut Definition)) -> Definition {
    let begin = OwnHook::parse("fentry", "vfs_read").unwrap();
    let mut definition = Definition {
        protocol: "p".into(),
        operation: "READ".into(),
        file: "f".into(),
        end: at(begin.return_of().unwrap()),
        begin: at(begin),
        key: vec![],
        bytes: None,
        status: None,
        mount: None,
        path: None,
    };
    set(&mut definition);
    definition
}

fn source(text: &str) -> Option<At<ValueSource>> {
    Some(at(ValueSource::parse(text).unwrap()))
}

#[test]
fn values_are_found_where_this_kernel_has_them() {
    let Some(kernel) = kernel("values_are_found_where_this_kernel_has_them") else { return };
    let definition = reading(|one| {
        one.bytes = source("args.count");
        one.status = source("return");
        one.mount = source("args.file");
        one.path = source("end.file");
    });
    let (by_fentry, modules) = plan(&definition, (AttachWay::Fentry, AttachWay::Fexit), &kernel).unwrap();
    assert_eq!(modules, [None, None]);
    let own_plan { bytes, status, mount, file, .. } = by_fentry;
    assert_eq!((bytes.from, bytes.number, bytes.steps, bytes.size), (own_from::OWN_ARGUMENT.0, 2, 0, 8));
    assert_eq!((status.from, status.number, status.is_signed), (own_from::OWN_RETURN.0, 4, 1));
    assert_eq!((mount.number, mount.steps, mount.size, mount.at_end), (0, 3, 4, 0));
    assert_eq!((file.number, file.size, file.at_end), (0, 8, 1));
    assert_eq!((by_fentry.by_thread, by_fentry.keeps_arguments), (1, 0));
    let (by_kprobe, _) = plan(&definition, (AttachWay::Kprobe, AttachWay::Kprobe), &kernel).unwrap();
    assert_eq!((by_kprobe.keeps_arguments, by_kprobe.file.number), (1, 0), "kept for the end");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let Some(kernel) = kernel("what_is_not_there_is_refused_with_what_is") else { return };
    let said = |definition: &Definition| {
        let MissingInKernel { at, text, fix } =
            plan(definition, (AttachWay::Fentry, AttachWay::Fexit), &kernel).unwrap_err();
        assert_eq!(at, (3, 7));
        format!("{text}; {fix}")
    };
    let bytes = |text: &str| said(&reading(|one| one.bytes = source(text)));
    assert_eq!(bytes("args.fd"), "vfs_read has no argument `fd`; there are file, buf, count, pos");
    assert_eq!(bytes("args.cont"), "vfs_read has no argument `cont`; did you mean `count`?");
    assert_eq!(bytes("args.file->f_inod->i_ino"), "struct file has no field `f_inod`; did you mean `f_inode`?");
    let number = bytes("args.count.x");
    assert!(
        number.starts_with("`args.count` is a number (") && number.contains("), which has no fields; "),
        "{number}"
    );
    let pointer = bytes("args.file");
    assert!(pointer.starts_with(
        "`args.file` is a pointer to struct file, not a number of bytes; name a number; of its fields, these are: "
    ));
    let mount = said(&reading(|one| one.mount = source("args.buf")));
    assert!(mount.starts_with("`args.buf` is a pointer to char, not a device number"), "{mount}");
    let file = said(&reading(|one| one.path = source("args.count")));
    assert!(file.starts_with("`args.count` is a number (") && file.contains("), not a text"), "{file}");
    let slip = said(&reading(|one| one.begin = at(OwnHook::parse("fentry", "vfs_raed").unwrap())));
    assert!(
        slip.starts_with(
            "this kernel, with the modules that are loaded, has no function `vfs_raed`; did you mean vfs_read"
        ),
        "{slip}"
    );
    let key = ValueSource::parse("args.file").unwrap();
    let by_return = reading(|one| one.key = vec![(at(key.clone()), at(key.clone()))]);
    assert!(plan(&by_return, (AttachWay::Fentry, AttachWay::Fexit), &kernel).is_ok());
    assert!(plan(&by_return, (AttachWay::Kprobe, AttachWay::Kprobe), &kernel).is_err(), "it has no registers left");
}

#[test]
fn a_tracepoint_is_known_by_the_types_of_its_arguments() {
    let Some(kernel) = kernel("a_tracepoint_is_known_by_the_types_of_its_arguments") else { return };
    let hook = |name: &str| at(OwnHook::parse("tracepoint", &format!("block:{name}")).unwrap());
    let key = source("args.0").unwrap();
    let definition = reading(|one| {
        (one.begin, one.end) = (hook("block_rq_issue"), hook("block_rq_complete"));
        one.key = vec![(key.clone(), key.clone())];
        one.mount = source("args.0");
        one.bytes = source("end.2");
    });
    let (plan, _) = plan(&definition, (AttachWay::TpBtf, AttachWay::TpBtf), &kernel).unwrap();
    assert_eq!((plan.begin_key[0].size, plan.by_thread, plan.begin_key[1].from), (8, 0, 0));
    assert_eq!((plan.bytes.size, plan.bytes.at_end, plan.mount.size), (4, 1, 4));
    let Err(missing) =
        self::plan(&reading(|one| one.begin = hook("block_rq_isue")), (AttachWay::TpBtf, AttachWay::Fexit), &kernel)
    else {
        panic!("there is none")
    };
    assert_eq!(missing.fix, "did you mean block_rq_issue?");
}

#[test]
fn of_a_process_only_numbers_are_known() {
    let begin = OwnHook::parse("uprobe", "/bin/true:main").unwrap();
    let end = begin.return_of().unwrap();
    let kernel =
        Rc::new(Types::parse([0x9f, 0xeb, 1, 0, 24, 0, 0, 0].into_iter().chain([0; 16]).collect(), None).unwrap());
    let with = |bytes: &str| {
        let definition = reading(|one| {
            (one.begin, one.end) = (at(begin.clone()), at(end.clone()));
            (one.bytes, one.status, one.path) = (source(bytes), source("return"), source("args.0"));
        });
        plan(&definition, (AttachWay::Uprobe, AttachWay::Uprobe), &kernel)
    };
    let (plan, _) = with("args.2:u32").unwrap();
    assert_eq!((plan.bytes.number, plan.bytes.size, plan.bytes.is_signed), (2, 4, 0));
    assert_eq!((plan.status.from, plan.status.size, plan.file.size), (own_from::OWN_RETURN.0, 4, 0));
    assert!(with("args.count").unwrap_err().text.starts_with("`count` is the number of no argument of main"));
    assert!(with("args.6").unwrap_err().fix == "write args.0 to args.5");
    assert!(with("args.0->size").is_err());
}
