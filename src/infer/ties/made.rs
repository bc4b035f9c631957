//! How objects are made: every call of a class gives its flags values, and combinations that none gives do not exist. In: the classes that have
//! two of the flags, and their calls. Out: for each class, that one of the calls is as it was made. Never: a class that nothing in sight makes.
//! Next: `mod.rs`.

use super::read::{Reader, flag, iff, same};
use super::{Said, Ties};
use crate::infer::callers::tries;
use crate::infer::formula::Formula;
use crate::infer::practice::expr::Expr;
use crate::infer::practice::view::View;
use crate::infer::value::Value;
use crate::ir::{Arg, ArgKind, Const, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Resolved};
use crate::source::Name;

/// A parameter or field with its default.
pub(super) type Field = (Name, Option<Const>);

/// A class: what its objects are given, and what they are called with.
pub(super) struct Class<'n> {
    pub at: ClassRef,
    pub name: &'n Name,
    pub given: Vec<Field>,
    pub called: Vec<Field>,
}

/// An argument of a call.
type Given = (ArgKind, Expr);

impl Ties<'_> {
    /// What holds of the flags of classes by the calls that make their objects, and by those of what is made.
    pub(super) fn made(&self, here: ModuleId, names: &[Name], said: &Said) -> Vec<Formula> {
        let mut out = Vec::new();
        for (module, m) in self.project.modules.iter_enumerated() {
            let file = &self.files[m.file];
            if said.of(module, names).nth(1).is_none() {
                continue;
            }
            let says_two =
                |text: &str| said.of(module, names).filter(|name| text.contains(name.as_str())).nth(1).is_some();
            for (class, c) in m.ir.classes.iter_enumerated().filter(|(_, c)| says_two(file.slice(c.span))) {
                let at = ClassRef { module, class };
                let made = Class { at, name: &c.name, given: self.fields(at), called: self.params(at, "forward") };
                let spoken = |fields: &[Field]| fields.iter().filter(|(name, _)| names.contains(name)).count();
                let mut calls = Vec::new();
                if spoken(&made.given) + spoken(&made.called) > 1 {
                    calls = self.calls(&made, names);
                }
                if calls.is_empty() && module == here && spoken(&made.called) > 1 {
                    calls = self.calls_of_unknown(&made, names);
                }
                out.extend((!calls.is_empty()).then_some(Formula::Or(calls)));
            }
        }
        out
    }

    /// What a class is given, in order.
    pub(super) fn fields(&self, class: ClassRef) -> Vec<Field> {
        if self.project.own_method(class, "__init__").is_some() {
            return self.params(class, "__init__");
        }
        let Some(defaults) = self.settings.dataclass_fields(self.project, class) else { return Vec::new() };
        let text = self.files[self.project.file(class.module)].slice(self.project.class(class).span);
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut lines = text.lines().skip(1).filter(|line| !line.trim().is_empty()).peekable();
        let own = lines.peek().map_or(0, |line| indent(line));
        let name =
            |line: &str| Some(line.trim().split_once(':')?.0).filter(|name| name.chars().all(is_word)).map(Name::from);
        let fields = lines.filter(|line| indent(line) == own).filter_map(name);
        let default =
            |name: &Name| defaults.iter().find(|(n, _)| n == name).and_then(|(_, value)| known(value.as_ref()?));
        fields.map(|name| (name.clone(), default(&name))).collect()
    }

    /// The parameters of a method behind its receiver.
    fn params(&self, class: ClassRef, method: &str) -> Vec<Field> {
        let Some(func) = self.project.own_method(class, method) else { return Vec::new() };
        let defaults = self.settings.static_defaults(func);
        let of = |at: usize| defaults.iter().find(|(i, _)| *i as usize == at).and_then(|(_, value)| known(value));
        let params = self.project.func(func).params.iter().enumerate().skip(1);
        params.map(|(at, param)| (param.name.clone(), of(at))).collect()
    }

    /// What each call of a class says of its flags.
    pub(super) fn calls(&self, class: &Class<'_>, names: &[Name]) -> Vec<Formula> {
        let mut out = Vec::new();
        let (path, word) = (self.project.qualified_class(class.at), format!("{}(", class.name));
        let finder = memchr::memmem::Finder::new(&word);
        let calls = |text: &str| finder.find(text.as_bytes()).is_some();
        // How a test or an example makes an object of somebody else's class is no choice of the program.
        let tries = |module| tries(self.project, self.files, module);
        let counts = |module: ModuleId| !tries(module) || tries(class.at.module);
        for (module, m) in self.project.modules.iter_enumerated().filter(|(_, m)| calls(self.files[m.file].whole())) {
            if !counts(module) {
                continue;
            }
            let file = &self.files[m.file];
            for (func, f) in m.ir.funcs.iter_enumerated().filter(|(_, f)| calls(file.slice(f.span))) {
                let view = View::new(self.project, self.rules, self.files, FuncRef { module, func });
                let reader = Reader { ties: self, view: &view, here: true };
                for step in 0..view.steps.len() {
                    let Some(Rvalue::Call { callee, args }) = view.value(step) else { continue };
                    let is_class = match view.through(callee) {
                        Expr::Path(called) => called == path,
                        Expr::Local(local) => module == class.at.module && view.local_name(local) == class.name,
                        _ => false,
                    };
                    let within = f.class == Some(class.at.class) && module == class.at.module;
                    if is_class && !within {
                        let mut said = reader.said(args, &class.given, names);
                        said.extend(reader.calls_of_made(step, &class.called, names));
                        out.push(Formula::And(said));
                    }
                }
            }
        }
        out
    }

    /// What calls of something unknown say of the flags of a method that may be what is called, if one names a flag.
    fn calls_of_unknown(&self, class: &Class<'_>, names: &[Name]) -> Vec<Formula> {
        let (mut out, mut named) = (Vec::new(), false);
        for func in self.project.modules[class.at.module].ir.funcs.ids() {
            let view = View::new(self.project, self.rules, self.files, FuncRef { module: class.at.module, func });
            let reader = Reader { ties: self, view: &view, here: true };
            for step in 0..view.steps.len() {
                let Some(Rvalue::Call { callee, args }) = view.value(step) else { continue };
                let may_be = |arg: &Arg| match &arg.kind {
                    ArgKind::Positional => true,
                    ArgKind::Keyword(name) => class.called.iter().any(|(field, _)| field == name),
                    ArgKind::Star | ArgKind::DoubleStar => true,
                };
                if matches!(view.through(callee), Expr::Path(_))
                    || !args.iter().all(may_be)
                    || args.len() > class.called.len()
                {
                    continue;
                }
                named |= args.iter().any(|arg| matches!(&arg.kind, ArgKind::Keyword(name) if names.contains(name)));
                out.push(Formula::And(reader.said(args, &class.called, names)));
            }
        }
        if named { out } else { Vec::new() }
    }
}

/// The constant that a default is.
fn known(value: &Value) -> Option<Const> {
    match value {
        Value::Const(c) => Some(c.clone()),
        _ => None,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Reader<'_, '_> {
    /// What the arguments of a call say of the flags among these fields.
    fn said(&self, args: &[Arg], fields: &[Field], names: &[Name]) -> Vec<Formula> {
        let given: Vec<Given> = args.iter().map(|a| (a.kind.clone(), self.view.through(&a.value))).collect();
        let spoken = fields.iter().enumerate().filter(|(_, (name, _))| names.contains(name));
        spoken.filter_map(|(at, field)| self.given(at, field, &given)).collect()
    }

    /// What the calls of what a step makes say, if it is only called.
    fn calls_of_made(&self, step: usize, fields: &[Field], names: &[Name]) -> Option<Formula> {
        let Stmt::Assign { dst, .. } = self.view.steps[step].stmt else { return None };
        let readers = self.view.readers(*dst);
        let called = |reader: &usize| match self.view.value(*reader) {
            Some(Rvalue::Call { callee: Operand::Local(callee), args }) if callee == dst => {
                Some(Formula::And(self.said(args, fields, names)))
            }
            _ => None,
        };
        let calls: Option<Vec<Formula>> = readers.iter().map(called).collect();
        calls.filter(|calls| !calls.is_empty()).map(Formula::Or)
    }

    /// What a call says of a field.
    fn given(&self, at: usize, (name, default): &Field, args: &[Given]) -> Option<Formula> {
        let positional = args.iter().take_while(|(kind, _)| *kind == ArgKind::Positional).nth(at);
        let named = args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(k) if k == name));
        if let Some((_, value)) = positional.or(named) {
            return self.value(name, value);
        }
        let mut spread = args.iter().filter(|(kind, _)| matches!(kind, ArgKind::Star | ArgKind::DoubleStar)).peekable();
        if spread.peek().is_none() {
            return default.as_ref().map(|c| same(name, c));
        }
        spread.find_map(|(_, of)| self.in_dict(name, of))
    }

    /// That a field has a value.
    fn value(&self, name: &str, value: &Expr) -> Option<Formula> {
        match value {
            Expr::Const(c) => Some(same(name, c)),
            value => self.condition(value, true).map(|it| iff(flag(name), it)),
        }
    }

    /// What a dict gives a field that is written out here, or returned by a function that writes it out.
    fn in_dict(&self, name: &Name, dict: &Expr) -> Option<Formula> {
        let Expr::Call { callee, args, .. } = dict else { return None };
        let path = callee.path()?;
        if path == "dict" || path == "builtins.dict" {
            let (_, value) = args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(k) if k == name))?;
            return self.value(name, value);
        }
        let Resolved::Func(at) = self.ties.project.path(path) else { return None };
        let view = self.view.other(at);
        let mut returned = view.steps.iter().filter_map(|step| match step.stmt {
            Stmt::Return { value } => Some(view.through(value)),
            _ => None,
        });
        let (Some(dict), None) = (returned.next(), returned.next()) else { return None };
        // Followed once: a function that calls itself returns no dict that is written out.
        dict.call_of("dict")?;
        Reader { ties: self.ties, view: &view, here: true }.in_dict(name, &dict)
    }
}
