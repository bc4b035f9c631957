//! The parameters that a finding about reductions concerns. In: constructors of the project. Out: [`Concerned`], and the flags under which
//! they are marked. Never: parameters of other projects. Next: `data_sum.rs` and `marks.rs`, which report.

use super::expr::Expr;
use super::marking::mark_set;
use super::view::View;
use super::{Lint, marks};
use crate::ir::{Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::rules::Entry;
use crate::source::{Name, Place};

/// Parameters that are shown one by one.
const MOST_SHOWN: usize = 8;

/// Parameters by name and place: the first ones, and how many there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Concerned {
    pub shown: Vec<(Name, Place)>,
    pub count: usize,
}

impl Concerned {
    fn add(&mut self, name: String, place: Place) {
        self.count += 1;
        if self.shown.len() < MOST_SHOWN {
            self.shown.push((Name::from(name), place));
        }
    }
}

/// Flags with the values in which something holds.
pub type When = Vec<(Name, bool)>;

/// Every parameter that a class of the project makes.
pub fn all(lint: &Lint<'_>) -> Concerned {
    let mut out = Concerned::default();
    for (module, m) in lint.project.modules.iter_enumerated() {
        for class in m.ir.classes.ids() {
            let class = ClassRef { module, class };
            let Some(init) = lint.constructor(class).filter(|_| lint.files[m.file].whole().contains("nn")) else {
                continue;
            };
            for (name, place) in of_constructor(&init) {
                out.add(format!("{}.{name}", lint.project.class(class).name), place);
            }
        }
    }
    out
}

/// The parameters that constructors of the project mark, and the flags by which all of them do.
pub fn marked(lint: &Lint<'_>, mark: &str) -> (Concerned, When) {
    let mut out = Concerned::default();
    let mut flags: Option<When> = None;
    for module in lint.files.saying(mark).filter_map(|file| lint.project.module_of(file)) {
        for class in lint.project.modules[module].ir.classes.ids() {
            let class = ClassRef { module, class };
            let Some(init) = lint.constructor(class) else { continue };
            for step in &init.steps {
                let Some((Expr::Attr(_, name), set)) = mark_set(&init, step.stmt) else { continue };
                if set != mark || marks::is_config(&init, step.stmt) {
                    continue;
                }
                out.add(format!("{}.{name}", lint.project.class(class).name), init.place(step.id));
                let own: When = flag_of(&init, step.stmt).into_iter().collect();
                flags = Some(match flags {
                    None => own,
                    Some(known) => known.into_iter().filter(|f| own.contains(f)).collect(),
                });
            }
        }
    }
    (out, flags.unwrap_or_default())
}

/// The flag of a configuration that a mark is set to.
pub fn flag_of(init: &View<'_>, stmt: &Stmt) -> Option<(Name, bool)> {
    let value = match stmt {
        Stmt::SetAttr { value, .. } => value,
        Stmt::Assign { value: Rvalue::Call { args, .. }, .. } if args.len() == 3 => &args[2].value,
        _ => return None,
    };
    match init.through(value) {
        Expr::Attr(_, flag) => Some((flag, true)),
        Expr::Local(l) if init.is_param(l) => Some((init.local_name(l).clone(), true)),
        _ => None,
    }
}

/// `self.name = Parameter(...)`, `self.name = Linear(...)`: what a constructor makes that has parameters.
fn of_constructor(init: &View<'_>) -> Vec<(Name, Place)> {
    let Some(receiver) = init.func.params.first().map(|p| p.local) else { return Vec::new() };
    let mut out: Vec<(Name, Place)> = Vec::new();
    for step in &init.steps {
        let Stmt::SetAttr { base: Operand::Local(base), name, value } = step.stmt else { continue };
        let Expr::Call { callee, .. } = init.expr(value) else { continue };
        let Some(path) = callee.path().filter(|_| *base == receiver) else { continue };
        let has = match init.rules.get(path) {
            Some(Entry::Module(rule)) => !rule.params.is_empty(),
            Some(Entry::Layer(_)) => true,
            _ => path.ends_with(".Parameter"),
        };
        if has && !out.iter().any(|(known, _)| known == name) {
            out.push((name.clone(), init.place(step.id)));
        }
    }
    out
}
