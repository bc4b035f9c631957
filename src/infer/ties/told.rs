//! What functions say of flags: what they assert, what they raise against, what they set and what properties give. In: functions. Out: formulas
//! that hold. Never: what an object keeps for itself, which is executed. Next: `made.rs`.

use super::Ties;
use super::read::{Reader, flag, iff};
use crate::infer::formula::Formula;
use crate::infer::practice::near;
use crate::infer::practice::view::{Guard, View};
use crate::ir::Stmt;
use crate::project::FuncRef;
use crate::source::Name;

/// What is collected from functions.
#[derive(Default)]
pub struct Told {
    holds: Vec<Formula>,
    /// What a function leaves a flag as; nothing where that is not known.
    set: Vec<(Name, FuncRef, Option<Formula>)>,
}

impl Told {
    pub fn read(&mut self, ties: &Ties<'_>, at: FuncRef, here: bool) {
        let view = View::new(ties.project, ties.rules, ties.files, at);
        let reader = Reader { ties, view: &view, here };
        for step in &view.steps {
            if !step.handlers.is_empty() || !step.loops.is_empty() {
                continue;
            }
            match step.stmt {
                Stmt::Assert { test } => {
                    let asserted = reader.condition(&view.through(test), true);
                    self.holds.extend(asserted.map(|it| implied(&reader, &step.guards, it)));
                }
                Stmt::Raise => self.holds.extend(refused(&reader, &step.guards)),
                Stmt::Return { value } if near::is_property(&view, at) && step.guards.is_empty() => {
                    let value = reader.condition(&view.through(value), true);
                    let own = reader.here || reader.class().is_some_and(|class| ties.is_config_class(class));
                    self.holds.extend(value.filter(|_| own).map(|it| iff(flag(&view.func.name), it)));
                }
                Stmt::SetAttr { base, name, value } if reader.is_config(&view.expr(base)) => {
                    let value = reader.condition(&view.through(value), true);
                    let given = value.map(|it| implied(&reader, &step.guards, iff(flag(name), it)));
                    self.set.push((name.clone(), at, given));
                }
                _ => {}
            }
        }
    }

    /// Everything that holds. A flag that several functions set is as one of them leaves it.
    pub fn finish(mut self) -> Vec<Formula> {
        let mut names: Vec<Name> = self.set.iter().map(|(name, ..)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let own: Vec<_> = self.set.iter().filter(|(set, ..)| *set == name).collect();
            let mut funcs: Vec<FuncRef> = own.iter().map(|(_, at, _)| *at).collect();
            funcs.dedup();
            let left = |at: &FuncRef| -> Option<Formula> {
                let all: Option<Vec<Formula>> =
                    own.iter().filter(|(_, f, _)| f == at).map(|(.., it)| it.clone()).collect();
                all.map(Formula::And)
            };
            let all: Option<Vec<Formula>> = funcs.iter().map(left).collect();
            self.holds.extend(all.map(Formula::Or));
        }
        self.holds
    }
}

/// That something holds where these tests say so. A test of something else than flags is taken to let it happen.
fn implied(reader: &Reader<'_, '_>, guards: &[Guard<'_>], holds: Formula) -> Formula {
    let tests = guards.iter().filter_map(|guard| tested(reader, guard));
    Formula::Or(tests.map(Formula::negate).chain([holds]).collect())
}

/// That what the tests around a `raise` ask is not so, if all of them are understood.
fn refused(reader: &Reader<'_, '_>, guards: &[Guard<'_>]) -> Option<Formula> {
    let tests: Option<Vec<Formula>> = guards.iter().map(|guard| tested(reader, guard)).collect();
    tests.filter(|tests| !tests.is_empty()).map(|tests| Formula::And(tests).negate())
}

/// What a test says that went this way, where the program does not go on otherwise.
fn tested(reader: &Reader<'_, '_>, guard: &Guard<'_>) -> Option<Formula> {
    // Within a refusal and within a premise alike the test is denied in the end.
    let test = reader.condition(&reader.view.through(guard.test), !guard.holds)?;
    Some(if guard.holds { test } else { test.negate() })
}
