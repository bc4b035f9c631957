//! Flags of which the program has one value alone: a function that the constructor calls refuses the other one, or the configuration that the
//! file names does, or every call of the project that gives the flag gives that value. In: a finding. Out: the finding without the worlds in
//! which such a flag is otherwise. Never: what a flag is by default, or what another class refuses. Next: `always.rs`.

use super::told::Told;
use super::{Ties, flags_of, without};
use crate::infer::finding::Finding;
use crate::infer::formula::{Atom, Facts, Formula, Outcome};
use crate::infer::practice::near;
use crate::infer::practice::view::View;
use crate::ir::{ArgKind, Const, FuncKind, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::Name;

impl Ties<'_> {
    /// A finding with the worlds that are not refused for one flag alone, if there are any.
    pub(super) fn possible_alone(&self, finding: Finding) -> Option<Finding> {
        let flags = flags_of(&finding);
        let Some(at) = self.project.function_at(finding.place).filter(|_| !flags.is_empty()) else {
            return Some(finding);
        };
        let told = self.refusals(at, &flags);
        let denied: Vec<(&Name, bool)> = flags
            .iter()
            .filter_map(|flag| {
                let only = |tie: &&Formula| tie.atoms() == [Atom::True(flag.clone())];
                let refused = |value: bool| {
                    let facts = Facts::default().with(Atom::True(flag.clone()), value);
                    told.iter().filter(only).any(|tie| matches!(tie.eval(&facts), Outcome::Decided(false)))
                };
                let value = match (refused(true), refused(false)) {
                    (true, false) => Some(true),
                    (false, true) => Some(false),
                    (true, true) | (false, false) => self.given_once(flag).map(|given| !given),
                };
                value.map(|value| (flag, value))
            })
            .collect();
        without(finding, &denied)
    }

    /// What holds by what the constructor of a finding's class calls in its file, and by the configurations that the file names.
    fn refusals(&self, at: FuncRef, flags: &[Name]) -> Vec<Formula> {
        let Some(class) = self.project.func(at).class else { return Vec::new() };
        let own = &self.files[self.project.file(at.module)];
        let of_class = own.slice(self.project.class(ClassRef { module: at.module, class }).span);
        let mut told = Told::default();
        for (module, m) in self.project.modules.iter_enumerated() {
            let text = self.files[m.file].whole();
            if !flags.iter().any(|flag| text.contains(flag.as_str())) {
                continue;
            }
            for (func, f) in m.ir.funcs.iter_enumerated().filter(|(_, f)| f.kind == FuncKind::Function) {
                let speaks = match f.class {
                    Some(c) => self.is_named_config(ClassRef { module, class: c }, own.whole()),
                    None => module == at.module && of_class.contains(&format!("{}(", f.name)),
                };
                let text = self.files[m.file].slice(f.span);
                let refuses = || near::has_any(text, &["raise", "assert"]);
                if speaks && flags.iter().any(|flag| text.contains(flag.as_str())) && refuses() {
                    told.read(self, FuncRef { module, func }, module == at.module);
                }
            }
        }
        told.finish()
    }

    /// Whether a class holds settings and a text names it.
    fn is_named_config(&self, class: ClassRef, text: &str) -> bool {
        text.contains(self.project.class(class).name.as_str()) && self.is_config_class(class)
    }

    /// The value that a flag has wherever the project names it: in calls that give it, each time the same.
    fn given_once(&self, flag: &Name) -> Option<bool> {
        let mut given = None;
        for (module, m) in self.project.modules.iter_enumerated() {
            let text = self.files[m.file].whole();
            if !text.contains(flag.as_str()) {
                continue;
            }
            let mut named = 0;
            let bare = near::bare(text);
            let word = |c: char| c.is_alphanumeric() || c == '_';
            for (at, _) in bare.match_indices(flag.to_lowercase().as_str()) {
                if bare[..at].ends_with(word) || bare[at + flag.len()..].starts_with(word) {
                    continue;
                }
                let value = bare[at + flag.len()..].strip_prefix('=')?;
                let value =
                    value.starts_with("true").then_some(true).or(value.starts_with("false").then_some(false))?;
                if *given.get_or_insert(value) != value {
                    return None;
                }
                named += 1;
            }
            if self.calls_that_give(module, flag) != named {
                return None;
            }
        }
        given
    }

    /// How many calls of a module give a flag a truth value by its name.
    fn calls_that_give(&self, module: ModuleId, flag: &Name) -> usize {
        let m = &self.project.modules[module];
        let gives = |view: &View<'_>| {
            let count = |stmt: &Stmt| match stmt {
                Stmt::Assign { value: Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }, .. } => {
                    let by_name = |kind: &ArgKind| matches!(kind, ArgKind::Keyword(name) if name == flag);
                    let known = |arg: &crate::ir::Arg| matches!(arg.value, crate::ir::Operand::Const(Const::Bool(_)));
                    args.iter().filter(|arg| by_name(&arg.kind) && known(arg)).count()
                }
                _ => 0,
            };
            view.steps.iter().map(|step| count(step.stmt)).sum::<usize>()
        };
        m.ir.funcs
            .ids()
            .map(|func| gives(&View::new(self.project, self.rules, self.files, FuncRef { module, func })))
            .sum()
    }
}
