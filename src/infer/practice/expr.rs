//! Expressions as trees, for reading. In: statements. Out: [`Expr`], and the operands of a statement. Never: evaluation.
//! Next: `view.rs`.

use crate::ir::{ArgKind, BinOp, CmpOp, Const, LocalId, UnOp};
use crate::project::{ModuleId, Project, Resolved};
use crate::source::Name;

/// An expression. Variables stay variables.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Const(Const),
    /// A name of a module, or a member of one, by qualified path.
    Path(Name),
    Local(LocalId),
    Attr(Box<Expr>, Name),
    Item(Box<Expr>, Box<Expr>),
    /// An element of what is iterated over.
    Element(Box<Expr>),
    /// `step`: of the call.
    Call {
        callee: Box<Expr>,
        args: Vec<(ArgKind, Expr)>,
        step: usize,
    },
    Unary(UnOp, Box<Expr>),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    Compare(CmpOp, Box<Expr>, Box<Expr>),
    Bool {
        and: bool,
        of: Vec<Expr>,
    },
    /// `b if a else c`
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A tuple or a list.
    Build(Vec<Expr>),
    Unknown,
}

impl Expr {
    pub fn path(&self) -> Option<&Name> {
        match self {
            Expr::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The last name of a path or attribute chain: `tp_group` of `self.tp_group`.
    pub fn last_name(&self) -> Option<&str> {
        match self {
            Expr::Path(path) => path.rsplit('.').next(),
            Expr::Attr(_, name) => Some(name),
            _ => None,
        }
    }

    /// Whether it names an operator of reductions other than a sum or a mean.
    pub fn is_other_reduction(&self) -> bool {
        matches!(self.last_name(), Some("MAX" | "MIN" | "PRODUCT" | "BAND" | "BOR" | "BXOR"))
    }

    /// The arguments of a call of a path or method that ends like this.
    pub fn call_of(&self, last: &str) -> Option<&[(ArgKind, Expr)]> {
        match self {
            Expr::Call { callee, args, .. } if callee.last_name() == Some(last) => Some(args),
            _ => None,
        }
    }

    /// The expressions directly inside.
    pub fn inner(&self) -> Vec<&Expr> {
        match self {
            Expr::Const(_) | Expr::Path(_) | Expr::Local(_) | Expr::Unknown => Vec::new(),
            Expr::Attr(a, _) | Expr::Element(a) | Expr::Unary(_, a) => vec![a],
            Expr::Item(a, b) | Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => vec![a, b],
            Expr::Call { callee, args, .. } => std::iter::once(&**callee).chain(args.iter().map(|(_, a)| a)).collect(),
            Expr::Bool { of, .. } | Expr::Build(of) => of.iter().collect(),
            Expr::Choice(a, b, c) => vec![a, b, c],
        }
    }

    /// Whether an expression or one inside it is as asked.
    pub fn any(&self, wanted: &mut dyn FnMut(&Expr) -> bool) -> bool {
        if wanted(self) {
            return true;
        }
        match self {
            Expr::Const(_) | Expr::Path(_) | Expr::Local(_) | Expr::Unknown => false,
            Expr::Attr(a, _) | Expr::Element(a) | Expr::Unary(_, a) => a.any(wanted),
            Expr::Item(a, b) | Expr::Binary(_, a, b) | Expr::Compare(_, a, b) => a.any(wanted) || b.any(wanted),
            Expr::Call { callee, args, .. } => callee.any(wanted) || args.iter().any(|(_, a)| a.any(wanted)),
            Expr::Bool { of, .. } | Expr::Build(of) => of.iter().any(|e| e.any(wanted)),
            Expr::Choice(a, b, c) => a.any(wanted) || b.any(wanted) || c.any(wanted),
        }
    }

    pub fn mentions(&self, local: LocalId) -> bool {
        self.any(&mut |e| matches!(e, Expr::Local(l) if *l == local))
    }

    pub fn string(&self) -> Option<&Name> {
        match self {
            Expr::Const(Const::Str(text)) => Some(text),
            _ => None,
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Expr::Const(Const::None))
    }
}

/// The qualified path that an annotation names, if it is a name and nothing else.
pub fn path_of_hint(project: &Project, module: ModuleId, hint: &str) -> Option<Name> {
    let hint = hint.trim_matches(['"', '\'']);
    let (head, rest) = hint.split_once('.').map_or((hint, None), |(head, rest)| (head, Some(rest)));
    if head.is_empty() || !head.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let path = path_of(project, &project.member(module, head)?);
    Some(rest.map_or(path.clone(), |rest| Name::from(format!("{path}.{rest}"))))
}

/// The qualified path of what a name leads to.
pub fn path_of(project: &Project, resolved: &Resolved) -> Name {
    match resolved {
        Resolved::Func(at) => project.qualified(*at),
        Resolved::Class(at) => project.qualified_class(*at),
        Resolved::Module(m) => project.name(*m).clone(),
        Resolved::Package(path) | Resolved::External(path) => path.clone(),
        Resolved::Value(m, name) => Name::from(format!("{}.{name}", project.name(*m))),
    }
}
