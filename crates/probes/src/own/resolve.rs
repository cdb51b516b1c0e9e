//! Resolves a site's definition of an operation to the places where the programs find its values on this kernel, or to
//! the reason why they cannot.

use std::rc::Rc;

use super::{
    definition::{At, Definition, OwnHook, ValueRoot, ValueSource},
    functions::{function, tracepoint},
    tracefs,
    walk::{ValueWalk, What},
    ways::AttachWay,
    words::one_of,
};
use crate::btf::{BtfId, BtfKind, Function, Types};
use crate::generated::{own_from, own_place, own_plan};

/// The most arguments that a program can read; for registers, the number of the architecture with the fewest.
const IN_REGISTERS: usize = 6;
const IN_ARRAY: usize = 12;

/// Something of a definition that this kernel does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingInKernel {
    /// Line and column in the configuration.
    pub at: (usize, usize),
    /// What is wrong.
    pub text: String,
    /// What to do about it; empty if nothing can be done.
    pub fix: String,
}

impl MissingInKernel {
    pub(super) fn at<T>(at: &At<T>, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { at: (at.line, at.column), text: text.into(), fix: fix.into() }
    }
}

/// The plan of an operation whose hooks are attached in these ways, and the modules that its functions are of.
pub(super) fn plan(
    definition: &Definition,
    (begin_way, end_way): (AttachWay, AttachWay),
    kernel: &Rc<Types>,
) -> Result<(own_plan, [Option<String>; 2]), MissingInKernel> {
    let begin = ResolvedHook::of(&definition.begin, begin_way, kernel)?;
    let end = ResolvedHook::of(&definition.end, end_way, kernel)?;
    let same = definition.begin.value.return_of().as_ref() == Some(&definition.end.value);
    let (begin_hook, end_hook) = (&definition.begin.value, &definition.end.value);
    // At the return of a function, registers no longer hold the arguments.
    let keeps = end_hook.is_return() && end_way != AttachWay::Fexit;
    let at_end = |source: &At<ValueSource>| {
        if source.value.root == ValueRoot::End && keeps && !same {
            let fix = "name the same function in `begin` and `end`, or take the value from `args`";
            return Err(MissingInKernel::at(source, format!("the return of {end_hook} has no arguments"), fix));
        }
        // The values were kept when the function was called.
        Ok(if keeps && same { (&begin, begin_hook) } else { (&end, end_hook) })
    };
    let take = |source: &Option<At<ValueSource>>, what: What| {
        let Some(source) = source else { return Ok(own_place::default()) };
        let (seen, hook) = match source.value.root {
            ValueRoot::Begin => (&begin, begin_hook),
            ValueRoot::Return => (&end, end_hook),
            ValueRoot::End | ValueRoot::Thread => at_end(source)?,
        };
        let mut place = seen.place(source, hook, what)?;
        place.at_end = u32::from(source.value.root != ValueRoot::Begin);
        Ok(place)
    };
    let mut plan = own_plan {
        bytes: take(&definition.bytes, What::Bytes)?,
        status: take(&definition.status, What::Status)?,
        mount: take(&definition.mount, What::Mount)?,
        file: take(&definition.path, What::File)?,
        by_thread: u32::from(definition.key.is_empty()),
        keeps_arguments: u32::from(keeps && same),
        ..own_plan::default()
    };
    let thread = own_place { from: own_from::OWN_THREAD.0, size: 8, ..own_place::default() };
    if definition.key.is_empty() {
        (plan.begin_key[0], plan.end_key[0]) = (thread, thread);
    }
    let places = plan.begin_key.iter_mut().zip(plan.end_key.iter_mut());
    for ((first, second), (at_begin, at_end)) in definition.key.iter().zip(places) {
        if keeps && second.value.root == ValueRoot::Begin {
            let fix = "leave `key` out: one thread calls a function and returns from it";
            return Err(MissingInKernel::at(second, format!("the return of {end_hook} has no arguments here"), fix));
        }
        *at_begin =
            if first.value.root == ValueRoot::Thread { thread } else { begin.place(first, begin_hook, What::Key)? };
        *at_end = if second.value.root == ValueRoot::Thread { thread } else { end.place(second, end_hook, What::Key)? };
    }
    Ok((plan, [begin.module, end.module]))
}

/// The values that a program on a hook can read.
struct ResolvedHook {
    way: AttachWay,
    arguments: HookArguments,
    /// Of a module's function, its name.
    module: Option<String>,
}

enum HookArguments {
    Typed(Rc<Types>, Function),
    Fields(Vec<tracefs::TracepointField>),
    Numbered,
}

impl ResolvedHook {
    fn of(hook: &At<OwnHook>, way: AttachWay, kernel: &Rc<Types>) -> Result<Self, MissingInKernel> {
        let (arguments, module) = match &hook.value {
            OwnHook::Function { module, name, .. } => {
                let (types, module, function) = function(hook, module.as_deref(), name, kernel)?;
                (HookArguments::Typed(types, function), module)
            }
            OwnHook::Tracepoint { group, name } if way == AttachWay::Record => {
                let fields = tracefs::fields(group, name);
                let refuse =
                    |(text, fix)| MissingInKernel::at(hook, format!("the tracepoint {}: {text}", hook.value), fix);
                (HookArguments::Fields(fields.map_err(refuse)?), None)
            }
            OwnHook::Tracepoint { name, .. } => {
                let (types, module, function) = tracepoint(hook, name, kernel)?;
                (HookArguments::Typed(types, function), module)
            }
            OwnHook::User { .. } | OwnHook::Usdt { .. } => (HookArguments::Numbered, None),
        };
        Ok(Self { way, arguments, module })
    }

    fn place(&self, source: &At<ValueSource>, hook: &OwnHook, what: What) -> Result<own_place, MissingInKernel> {
        match &self.arguments {
            HookArguments::Typed(types, function) => self.typed(types, function, source, hook, what),
            HookArguments::Fields(fields) => field_of_record(fields, source, hook, what),
            HookArguments::Numbered => self.numbered(source, hook, what),
        }
    }

    /// A hook in a process, where no types are known.
    fn numbered(&self, source: &At<ValueSource>, hook: &OwnHook, what: What) -> Result<own_place, MissingInKernel> {
        let refuse = |text: String, fix: &str| Err(MissingInKernel::at(source, text, fix));
        let value = &source.value;
        if !value.fields.is_empty() {
            let text = format!("nothing is known of the fields of {}, since {hook} is in a process", value.text);
            return refuse(text, "write the number of an argument, such as args.2 or args.2:u32");
        }
        if what == What::Mount {
            return refuse(format!("{hook} tells of no mount"), "leave `mount` out");
        }
        let from = match value.root {
            ValueRoot::Return if !hook.is_return() => return no_return(source, hook),
            ValueRoot::Return => own_from::OWN_RETURN,
            _ => own_from::OWN_ARGUMENT,
        };
        let number = match (value.root, value.argument.parse::<u32>()) {
            (ValueRoot::Return, _) => 0,
            (_, Ok(number)) if (number as usize) < self.most() => number,
            _ => {
                let most = self.most() - 1;
                let text = format!("`{}` is the number of no argument of {hook}", value.argument);
                return refuse(text, &format!("write args.0 to args.{most}"));
            }
        };
        // A status is an int more often than not, and a long that is none does not look like an errno.
        let usual = if what == What::Status { (4, true) } else { (8, what == What::Bytes) };
        let (size, is_signed) = value.cast.unwrap_or(usual);
        let size = if what == What::File { 0 } else { size };
        Ok(own_place { from: from.0, number, size, is_signed: is_signed.into(), ..own_place::default() })
    }

    fn most(&self) -> usize {
        if self.way.has_registers() { IN_REGISTERS } else { IN_ARRAY }
    }

    fn typed(
        &self,
        types: &Types,
        function: &Function,
        source: &At<ValueSource>,
        hook: &OwnHook,
        what: What,
    ) -> Result<own_place, MissingInKernel> {
        let value = &source.value;
        if value.cast.is_some() {
            let fix = "leave the type out: the kernel describes its own";
            return Err(MissingInKernel::at(source, format!("`{}` has a type", value.text), fix));
        }
        let by_value = |(_, id): &(String, BtfId)| types.kind(*id) == BtfKind::Struct;
        let (from, number, id) = if value.root == ValueRoot::Return {
            if !hook.is_return() {
                return no_return(source, hook);
            }
            if types.kind(function.returns) == BtfKind::Void || function.arguments.iter().any(by_value) {
                let text = format!("{hook} returns nothing that can be read");
                return Err(MissingInKernel::at(source, text, "take the value from an argument"));
            }
            (own_from::OWN_RETURN, function.arguments.len(), function.returns)
        } else {
            let (number, id) = argument(function, source, hook)?;
            if number >= self.most() || function.arguments.iter().take(number + 1).any(by_value) {
                let text = format!("`{}` of {hook} is an argument that programs cannot read", value.argument);
                return Err(MissingInKernel::at(source, text, "take the value from another argument"));
            }
            (own_from::OWN_ARGUMENT, number, id)
        };
        let mut walk = ValueWalk { types, id, steps: Vec::new(), said: root_text(value), is_bits: false };
        for field in &value.fields {
            walk.field(field).map_err(|(text, fix)| MissingInKernel::at(source, text, fix))?;
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let place = own_place { from: from.0, number, ..own_place::default() };
        walk.finish(place, what).map_err(|(text, fix)| MissingInKernel::at(source, text, fix))
    }
}

fn no_return<T>(source: &At<ValueSource>, hook: &OwnHook) -> Result<T, MissingInKernel> {
    let fix = "name an argument, or write the function's return as the end: fexit, kretprobe or uretprobe";
    Err(MissingInKernel::at(source, format!("{hook} is no function's return, so it returns nothing"), fix))
}

fn field_of_record(
    fields: &[tracefs::TracepointField],
    source: &At<ValueSource>,
    hook: &OwnHook,
    what: What,
) -> Result<own_place, MissingInKernel> {
    let value = &source.value;
    if value.root == ValueRoot::Return {
        return no_return(source, hook);
    }
    let known = || fields.iter().map(|field| field.name.as_str());
    let Some(field) = fields.iter().find(|field| field.name == value.argument) else {
        let text = format!("the record of {hook} has no field `{}`", value.argument);
        return Err(MissingInKernel::at(source, text, one_of(&value.argument, known())));
    };
    let is_number = matches!(field.size, 1 | 2 | 4 | 8);
    if !value.fields.is_empty() || !is_number || what == What::File {
        let text = format!("`{}` of the record of {hook} is not {}", value.text, what.name());
        return Err(MissingInKernel::at(source, text, one_of("", known())));
    }
    let (number, size, is_signed) = (field.offset, field.size, field.is_signed.into());
    Ok(own_place { from: own_from::OWN_FIELD.0, number, size, is_signed, ..own_place::default() })
}

/// The number and type of an argument, by its name or number.
fn argument(function: &Function, source: &At<ValueSource>, hook: &OwnHook) -> Result<(usize, BtfId), MissingInKernel> {
    let wanted = &source.value.argument;
    let by_name = function.arguments.iter().position(|(name, _)| name == wanted);
    let number = by_name.or_else(|| wanted.parse().ok());
    if let Some((number, (_, id))) = number.and_then(|number| Some((number, function.arguments.get(number)?))) {
        return Ok((number, *id));
    }
    let known = function.arguments.iter().map(|(name, _)| name.as_str());
    let fix = match function.arguments.iter().all(|(name, _)| name.is_empty()) {
        true if function.arguments.is_empty() => String::new(),
        true => format!("this kernel does not name them; write args.0 to args.{}", function.arguments.len() - 1),
        false => one_of(wanted, known),
    };
    Err(MissingInKernel::at(source, format!("{hook} has no argument `{wanted}`"), fix))
}

fn root_text(value: &ValueSource) -> String {
    match value.root {
        ValueRoot::Return => "return".into(),
        ValueRoot::End => format!("end.{}", value.argument),
        _ => format!("args.{}", value.argument),
    }
}
