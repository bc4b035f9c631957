//! Annotation comments back to text. In: clauses and types. Out: the notation of the grammar, normalized. Never: spans.
//! Next: `annotation.rs`.

use super::annotation::{
    Alt, Atom, AxisAtom, ClauseKind, Cond, Dim, ReduceKind, Result_, Target, TypeExpr, TypedTarget,
};
use super::{Const, Name};
use std::fmt::{Display, Formatter, Result};

pub(super) fn clause(kind: &ClauseKind) -> String {
    match kind {
        ClauseKind::Signature { params, result } => match params.as_slice() {
            [] => format!("-> {result}"),
            params => format!("{} -> {result}", list(params)),
        },
        ClauseKind::Named(typed) => list(typed),
        ClauseKind::Bare(types) => list(types),
        ClauseKind::Trust(typed) => format!("trust {}", list(typed)),
        ClauseKind::Mesh { name, axes, over } => {
            let over = over.as_ref().map_or(String::new(), |o| format!(" over {o}"));
            format!("mesh {name} = {}{over}", list(axes))
        }
        ClauseKind::Alias { name, parts } => format!("alias {name} = {}", parts.join(" * ")),
        ClauseKind::Group { expr, axes } => format!("group {expr} = {}", list(axes)),
        ClauseKind::Flag(name) => format!("flag {name}"),
        ClauseKind::Assume(cond) => format!("assume {cond}"),
        ClauseKind::Mode(name) => format!("mode {name}"),
        ClauseKind::Extern { path, params, result } => format!("extern {path}({}) -> {result}", list(params)),
        ClauseKind::Param { target, ty, reduce } => {
            let reduce = reduce.as_ref().map_or(String::new(), |reduce| {
                let kind = match reduce.kind {
                    ReduceKind::Sum => "sum",
                    ReduceKind::Mean => "mean",
                    ReduceKind::None => "none",
                };
                format!(", reduce={kind}({})", list(&reduce.axes))
            });
            format!("param {target}: {ty}{reduce}")
        }
    }
}

fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(T::to_string).collect();
    items.join(", ")
}

impl Display for Result_ {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Result_::One(ty) => write!(f, "{ty}"),
            Result_::Tuple(types) => write!(f, "({})", list(types)),
        }
    }
}

impl Display for TypedTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: {}", self.target, self.ty)
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Target::Name(name) => write!(f, "{name}"),
            Target::Attr(name, path) => write!(f, "{name}.{}", path.join(".")),
            Target::Index(name, index) => write!(f, "{name}[{index}]"),
            Target::Key(name, key) => write!(f, "{name}[{key:?}]"),
            Target::Return => write!(f, "return"),
        }
    }
}

/// `A if c else B if d else C`
impl Display for TypeExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (index, (cond, alt)) in self.alternatives.iter().enumerate() {
            if index > 0 {
                write!(f, " else ")?;
            }
            write!(f, "{alt}")?;
            if let Some(cond) = cond {
                write!(f, " if {cond}")?;
            }
        }
        Ok(())
    }
}

impl Display for Alt {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Alt::Unknown => write!(f, "_"),
            Alt::Atom(atom) => write!(f, "{atom}"),
            Alt::Map(map) => write!(f, "{{{}}}", list(map)),
            Alt::Spec(dims) => {
                let dims: Vec<_> =
                    dims.iter().map(|axes| if axes.is_empty() { "None".into() } else { axis(axes) }).collect();
                write!(f, "spec({})", dims.join(", "))
            }
            Alt::Dims { dims, map } if map.is_empty() => write!(f, "[{}]", list(dims)),
            Alt::Dims { dims, map } => write!(f, "[{}] @ {{{}}}", list(dims), list(map)),
        }
    }
}

fn axis(axes: &[Name]) -> String {
    match axes {
        [one] => one.to_string(),
        several => format!("({})", list(several)),
    }
}

impl Display for AxisAtom {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: {}", axis(&self.axes), self.atom)
    }
}

impl Display for Dim {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}", self.name)?;
        self.over.iter().try_for_each(|axis| write!(f, "/{axis}"))
    }
}

impl Display for Atom {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Atom::Replicate => write!(f, "R"),
            Atom::Invariant => write!(f, "I"),
            Atom::Varying => write!(f, "V"),
            Atom::Partial => write!(f, "P"),
            Atom::Shard(dim) => write!(f, "S({dim})"),
        }
    }
}

impl Display for Cond {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Cond::Flag(name) => write!(f, "{name}"),
            Cond::Not(cond) => write!(f, "not {cond}"),
            Cond::And(terms) => joined(f, terms, " and "),
            Cond::Or(terms) => joined(f, terms, " or "),
            Cond::Equals(name, value) => match value {
                Const::None => write!(f, "{name} == None"),
                Const::Bool(true) => write!(f, "{name} == True"),
                Const::Bool(false) => write!(f, "{name} == False"),
                Const::Int(int) => write!(f, "{name} == {int}"),
                Const::Float(bits) => write!(f, "{name} == {:?}", f64::from_bits(*bits)),
                Const::Str(text) => write!(f, "{name} == {text:?}"),
                Const::Ellipsis => write!(f, "{name} == ..."),
            },
            Cond::Const(true) => write!(f, "True"),
            Cond::Const(false) => write!(f, "False"),
        }
    }
}

fn joined(f: &mut Formatter<'_>, terms: &[Cond], by: &str) -> Result {
    let terms: Vec<_> = terms.iter().map(Cond::to_string).collect();
    write!(f, "({})", terms.join(by))
}
