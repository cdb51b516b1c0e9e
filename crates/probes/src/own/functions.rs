//! The functions and tracepoints of this kernel and its modules, with the types of their arguments.

use std::rc::Rc;

use super::{
    definition::{At, OwnHook},
    resolve::MissingInKernel,
    words::near,
};
use crate::btf::{Function, Types};

/// A function of the kernel or a module: the types that it refers to, and the module.
pub(super) fn function(
    hook: &At<OwnHook>,
    module: Option<&str>,
    name: &str,
    kernel: &Rc<Types>,
) -> Result<(Rc<Types>, Option<String>, Function), MissingInKernel> {
    if let Some(module) = module {
        let types = Types::of_module(module, kernel).map_err(|error| {
            let text = format!("nothing is known of the types of the module {module}: {error}");
            MissingInKernel::at(hook, text, format!("`modprobe {module}`, if that is the module's name"))
        })?;
        return match types.function(name) {
            Some(function) => Ok((types, Some(module.to_owned()), function)),
            None => Err(no_function(hook, name, &types, &format!("the module {module}"))),
        };
    }
    if let Some(function) = kernel.function(name) {
        return Ok((Rc::clone(kernel), None, function));
    }
    in_modules(kernel, |types| types.function(name))
        .ok_or_else(|| no_function(hook, name, kernel, "this kernel, with the modules that are loaded,"))
}

/// Where one of the loaded modules has it.
fn in_modules<T>(kernel: &Rc<Types>, find: impl Fn(&Types) -> Option<T>) -> Option<(Rc<Types>, Option<String>, T)> {
    Types::modules().into_iter().find_map(|module| {
        let types = Types::of_module(&module, kernel).ok()?;
        let found = find(&types)?;
        Some((types, Some(module), found))
    })
}

fn no_function(hook: &At<OwnHook>, name: &str, types: &Types, whose: &str) -> MissingInKernel {
    let near = near(name, types.functions());
    let fix = match near.is_empty() {
        true => format!("if it is a module's, write MODULE:{name}; compilers put small functions into others"),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    MissingInKernel::at(hook, format!("{whose} has no function `{name}`"), fix)
}

/// A tracepoint's arguments: their types are those of a typedef, their names those of the function that calls its programs.
pub(super) fn tracepoint(
    hook: &At<OwnHook>,
    name: &str,
    kernel: &Rc<Types>,
) -> Result<(Rc<Types>, Option<String>, Function), MissingInKernel> {
    let look = |types: &Types| {
        let mut typed = types.function_type(&format!("btf_trace_{name}"))?;
        let named = ["__bpf_trace_", "__traceiter_"].iter().find_map(|kind| types.function(&format!("{kind}{name}")));
        if let Some(named) = named.filter(|named| named.arguments.len() == typed.arguments.len()) {
            typed.arguments.iter_mut().zip(named.arguments).for_each(|(typed, (name, _))| typed.0 = name);
        }
        // The first is the kernel's own.
        typed.arguments = typed.arguments.into_iter().skip(1).collect();
        Some(typed)
    };
    let own = look(kernel).map(|found| (Rc::clone(kernel), None, found));
    own.or_else(|| in_modules(kernel, look)).ok_or_else(|| {
        let all = kernel.functions().filter_map(|function| function.strip_prefix("__traceiter_"));
        let near = near(name, all);
        let fix = match near.is_empty() {
            true => "`perf list tracepoint` lists those that there are".to_owned(),
            false => format!("did you mean {}?", near.join(" or ")),
        };
        MissingInKernel::at(hook, format!("this kernel has no tracepoint `{}`", hook.value), fix)
    })
}
