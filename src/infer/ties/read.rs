//! Conditions over flags by their names. In: expressions of a function. Out: formulas whose atoms are the last names of what is asked.
//! Never: what a value is. Next: `told.rs`.

use super::Ties;
use crate::infer::formula::{Atom, Formula};
use crate::infer::practice::expr::Expr;
use crate::infer::practice::view::View;
use crate::infer::settings::is_degree;
use crate::ir::{BinOp, CmpOp, Const, UnOp};
use crate::project::ClassRef;
use crate::source::Name;

/// A function whose conditions are read.
pub struct Reader<'a, 'v> {
    pub ties: &'v Ties<'a>,
    pub view: &'v View<'a>,
    /// Whether the function is in the file of the finding: elsewhere only configurations are spoken of.
    pub here: bool,
}

pub fn flag(name: &str) -> Formula {
    Formula::Atom(Atom::True(Name::from(name)))
}

pub fn iff(a: Formula, b: Formula) -> Formula {
    let neither = Formula::And(vec![a.clone().negate(), b.clone().negate()]);
    Formula::Or(vec![Formula::And(vec![a, b]), neither])
}

impl Reader<'_, '_> {
    /// A condition as a formula. `holds`: whether it is known to be true; numbers that are not equal may both count as true.
    pub fn condition(&self, expr: &Expr, holds: bool) -> Option<Formula> {
        match expr {
            Expr::Const(c) => crate::infer::formula::truth(c).map(Formula::Const),
            Expr::Attr(..) | Expr::Local(_) => self.flag_of(expr).map(|name| flag(&name)),
            Expr::Unary(UnOp::Not, of) => self.condition(of, !holds).map(Formula::negate),
            Expr::Bool { and, of } => {
                let all: Option<Vec<Formula>> = of.iter().map(|e| self.condition(e, holds)).collect();
                all.map(|all| if *and { Formula::And(all) } else { Formula::Or(all) })
            }
            Expr::Binary(BinOp::BitXor, a, b) => self.equal(a, b, !holds).map(Formula::negate),
            Expr::Compare(op, a, b) => match op {
                CmpOp::Eq | CmpOp::Is => self.equal(a, b, holds),
                CmpOp::Ne | CmpOp::IsNot => self.equal(a, b, !holds).map(Formula::negate),
                // Several ranks are what is checked.
                CmpOp::Gt if self.counts(a) && **b == Expr::Const(Const::Int(1)) => Some(Formula::Const(true)),
                _ => None,
            },
            Expr::Call { args, .. } if expr.call_of("bool").is_some() => self.condition(&args.first()?.1, holds),
            Expr::Call { args, .. } if expr.call_of("getattr").is_some() => {
                args.get(1)?.1.string().map(|name| flag(name))
            }
            Expr::Choice(test, a, b) => {
                let (told, denied) = (self.condition(test, holds)?, self.condition(test, !holds)?.negate());
                let (a, b) = (self.condition(a, holds)?, self.condition(b, holds)?);
                Some(Formula::Or(vec![Formula::And(vec![told, a]), Formula::And(vec![denied, b])]))
            }
            _ => None,
        }
    }

    /// Whether an expression is a number of ranks, by its name.
    fn counts(&self, expr: &Expr) -> bool {
        self.view.name_of(expr).is_some_and(|name| is_degree(name) || self.ties.settings.counts_ranks(name))
    }

    /// That two things are equal: a flag and a constant or a member of an enumeration, or two flags.
    fn equal(&self, a: &Expr, b: &Expr, holds: bool) -> Option<Formula> {
        let a_is_flag = matches!(a, Expr::Attr(..) | Expr::Local(_)) && member(a).is_none();
        match (a_is_flag, constant(b)) {
            (true, Some(c)) => return self.is(&self.flag_of(a)?, &c),
            (false, _) if constant(a).is_some() => return self.is(&self.flag_of(b)?, &constant(a)?),
            _ => {}
        }
        if self.counts(a) {
            return (*b == Expr::Const(Const::Int(1))).then_some(Formula::Const(false));
        }
        if !holds {
            return None;
        }
        Some(iff(self.condition(a, true)?, self.condition(b, true)?))
    }

    /// That a flag is a constant.
    fn is(&self, name: &str, c: &Const) -> Option<Formula> {
        if self.ties.settings.counts_ranks(name) || is_degree(name) {
            return (*c == Const::Int(1)).then_some(Formula::Const(false));
        }
        Some(same(name, c))
    }

    /// The name of a flag that may be one of the finding.
    fn flag_of(&self, expr: &Expr) -> Option<Name> {
        match expr {
            Expr::Local(local) => self.here.then(|| self.view.local_name(*local).clone()),
            Expr::Attr(base, name) => (self.here || self.is_config(base)).then(|| name.clone()),
            _ => None,
        }
    }

    /// Whether what has an attribute is a configuration: by its name, or as the receiver of one of its methods.
    pub fn is_config(&self, base: &Expr) -> bool {
        match self.view.name_of(base) {
            Some("self") => self.class().is_some_and(|class| self.ties.is_config_class(class)),
            Some(name) => self.ties.settings.is_config(name),
            None => false,
        }
    }

    pub fn class(&self) -> Option<ClassRef> {
        self.view.func.class.map(|class| ClassRef { module: self.view.at.module, class })
    }
}

impl Ties<'_> {
    /// Whether a class holds settings: a dataclass, or one that is called so.
    pub fn is_config_class(&self, class: ClassRef) -> bool {
        let name = &self.project.class(class).name;
        let ends = ["Config", "Cfg", "Args", "Arguments", "Options", "Settings", "Params"];
        ends.iter().any(|end| name.ends_with(end)) || self.settings.dataclass_fields(self.project, class).is_some()
    }
}

/// That a flag of this name is a constant.
pub fn same(name: &str, c: &Const) -> Formula {
    match c {
        Const::Bool(true) => flag(name),
        Const::Bool(false) => flag(name).negate(),
        Const::None => Formula::Atom(Atom::IsNone(Name::from(name))),
        c => Formula::Atom(Atom::Equals(Name::from(name), c.clone())),
    }
}

/// A constant, or the member of an enumeration by its name.
fn constant(expr: &Expr) -> Option<Const> {
    match expr {
        Expr::Const(c) => Some(c.clone()),
        other => member(other).map(|name| Const::Str(Name::from(name))),
    }
}

/// The last name of what is written as a constant: `Mode.REDUCE_SCATTER`.
fn member(expr: &Expr) -> Option<&str> {
    let name = matches!(expr, Expr::Path(_)).then(|| expr.last_name())??;
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_').then_some(name)
}
