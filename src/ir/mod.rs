//! The structured intermediate representation: nested blocks of flat, one-operation statements.
//!
//! In: nothing (plain data). Out: what `syntax/` builds and `infer/` executes. Never: positions inside statements (they are in
//! [`Spans`]), lifetimes, or names of frameworks. Next: `annotation.rs`, then `syntax/lower`.
//!
//! Invariants:
//! 1. owned, no lifetimes;
//! 2. no positions inside statements, all in the side table [`Spans`];
//! 3. locals are slots; a name that is not local is [`Operand::Global`], resolved by `infer/` against the module and the builtins;
//! 4. lowering never fails: what it does not understand becomes [`Rvalue::Opaque`] and an approximation;
//! 5. every tensor-producing step is one statement with one id and one span.

pub mod annotation;
mod code;
pub mod display;
mod display_annotation;
mod operands;
mod tables;

pub use code::{Code, Lower};
pub use tables::{Locals, Spans, SpansSoFar};

use crate::source::{File, IndexVec, Name, Span};
use std::collections::BTreeSet;

crate::define_id!(
    /// A function (or module body, class body, lambda) of one file.
    FuncId
);
crate::define_id!(
    /// A class of one file.
    ClassId
);
crate::define_id!(
    /// A statement of one function; indexes [`Spans`].
    StmtId
);
crate::define_id!(
    /// A local variable or temporary of one function.
    LocalId
);

/// One lowered file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileIr {
    /// `funcs[0]` is the module body.
    pub funcs: IndexVec<FuncId, Func>,
    pub classes: IndexVec<ClassId, Class>,
    /// File-level annotation clauses (mesh, alias, group, flag, assume, extern, mode).
    pub directives: Vec<annotation::Annotation>,
    pub suppressions: Vec<annotation::Suppression>,
}

/// What stands before the name of a definition in a function of this kind and name: `Class.`, `outer.<locals>.`.
pub fn prefix(kind: FuncKind, name: &str) -> String {
    match kind {
        FuncKind::Module => String::new(),
        FuncKind::ClassBody => format!("{name}."),
        FuncKind::Function | FuncKind::Lambda => format!("{name}.<locals>."),
    }
}

impl FileIr {
    /// `Class.method`, `outer.<locals>.inner`; `<module>` for the module body. It is made when it is asked for: few are.
    pub fn qualname(&self, func: FuncId) -> Name {
        let mut out = self.funcs[func].name.to_string();
        let mut around = self.funcs[func].parent;
        while let Some(parent) = around {
            let f = &self.funcs[parent];
            out.insert_str(0, &prefix(f.kind, &f.name));
            around = f.parent;
        }
        Name::from(out)
    }

    /// The functions around other definitions, lambdas not counted, in order.
    pub fn defining(&self) -> BTreeSet<FuncId> {
        self.funcs.iter().filter(|func| func.kind != FuncKind::Lambda).filter_map(|func| func.parent).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuncKind {
    Module,
    /// Executed when its class statement is; its named locals become class attributes.
    ClassBody,
    Function,
    Lambda,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Func {
    pub name: Name,
    pub kind: FuncKind,
    /// The class whose body defines it directly.
    pub class: Option<ClassId>,
    pub parent: Option<FuncId>,
    pub params: Box<[Param]>,
    /// Variables of enclosing functions that this one reads or writes: (the enclosing function's local, this function's local).
    pub captures: Box<[(LocalId, LocalId)]>,
    pub code: Code,
    /// `# spmd:` comments on the signature.
    pub signature: Box<[annotation::Annotation]>,
    /// `# spmd:` comments on statements, in order of statement: the id is the last statement of the logical line, after which
    /// the claim must hold.
    pub claims: Box<[Claim]>,
    /// The whole definition, decorators excluded.
    pub span: Span,
    /// The name in the `def` line.
    pub name_span: Span,
    pub is_async: bool,
    pub is_generator: bool,
    /// Whether a statement of it sets an attribute of anything.
    pub sets_attribute: bool,
    /// Whether the last statement of its body raises.
    pub ends_in_raise: bool,
    /// The string that begins the body, with its quotes.
    pub docstring: Option<Span>,
}

impl Func {
    /// The statements of the function, lowered again if they were set aside.
    #[inline]
    pub fn body(&self) -> &Block {
        self.code.body()
    }
    /// Where its statements are.
    #[inline]
    pub fn spans(&self) -> &Spans {
        self.code.spans()
    }
    /// Its variables.
    #[inline]
    pub fn locals(&self) -> &Locals {
        self.code.locals()
    }
    /// The docstring as it stands in the file, without quotes.
    pub fn documented<'t>(&self, file: &'t File) -> Option<&'t str> {
        let literal = file.slice(self.docstring?);
        Some(literal.trim_start_matches(['r', 'R', 'u', 'U']).trim_matches(['"', '\'']))
    }
}

/// An annotation comment on a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub stmt: StmtId,
    pub annotation: annotation::Annotation,
    /// On the line of the statement (rather than on its own line above).
    pub trailing: bool,
    /// Locals and attributes that the logical line assigns, in order, for the bare form.
    pub targets: Vec<ClaimTarget>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClaimTarget {
    Local(LocalId),
    /// `self.name = ...`
    Attr(Operand, Name),
    /// Something else (an item, a starred target): nothing can be claimed of it.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    pub name: Name,
    pub kind: LocalKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalKind {
    /// A variable of the user, used in this function alone.
    Plain,
    /// A variable of the user that a nested function reads or writes: it lives in a cell.
    Cell,
    /// A variable of an enclosing function (the inner end of a capture).
    Captured,
    /// A temporary of lowering.
    Temp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    PositionalOnly,
    Normal,
    VarArgs,
    KeywordOnly,
    KwArgs,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub local: LocalId,
    pub name: Name,
    pub kind: ParamKind,
    pub has_default: bool,
    /// Source text of the Python annotation, spaces removed: `torch.Tensor`, `Optional[int]`.
    pub hint: Option<Name>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    pub name: Name,
    pub qualname: Name,
    pub body: FuncId,
    pub span: Span,
    pub name_span: Span,
    /// Methods defined directly in the body, last definition of a name wins.
    pub methods: Vec<(Name, FuncId)>,
}

/// Statements in order, without room for more.
pub type Block = Box<[Node]>;

// Most of the memory of a run.
const _: () = assert!(size_of::<Node>() <= 80);

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub id: StmtId,
    pub stmt: Stmt,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// Parts: those of the value.
    Assign {
        dst: LocalId,
        value: Rvalue,
    },
    /// A name declared `global`. Parts: value.
    SetGlobal {
        name: Name,
        value: Operand,
    },
    /// Parts: base, value. The span is the target `base.name`.
    SetAttr {
        base: Operand,
        name: Name,
        value: Operand,
    },
    /// Parts: base, index, value. The span is the target `base[index]`.
    SetItem {
        base: Operand,
        index: Box<Operand>,
        value: Operand,
    },
    /// Tuple unpacking into slots; nested targets go through temporaries. Parts: value, then each target.
    Unpack {
        value: Operand,
        before: Box<[LocalId]>,
        star: Option<LocalId>,
        after: Box<[LocalId]>,
    },
    /// Parts: test.
    If {
        test: Operand,
        then: Block,
        orelse: Block,
    },
    /// Parts: iterated expression, target. `dst` is a slot; tuple targets are unpacked by the first statement of the body.
    For {
        dst: LocalId,
        iter: Operand,
        body: Block,
        orelse: Block,
    },
    /// `head` computes `test` before every round. Parts: test.
    While {
        head: Block,
        test: Box<Operand>,
        body: Block,
        orelse: Block,
    },
    /// One context manager (several are nested). Parts: context expression.
    With {
        context: Operand,
        bind: Option<LocalId>,
        body: Block,
    },
    Try {
        body: Block,
        handlers: Box<[Block]>,
        orelse: Block,
        finally: Block,
    },
    /// Parts: test.
    Assert {
        test: Operand,
    },
    /// Parts: value.
    Return {
        value: Operand,
    },
    Raise,
    Break,
    Continue,
    /// A `def`: defaults are evaluated here, decorators applied innermost (last) first. Parts: decorators.
    Def {
        dst: LocalId,
        func: FuncId,
        defaults: Box<[(u32, Operand)]>,
        decorators: Box<[Operand]>,
    },
    /// Parts: bases, then decorators.
    Class {
        dst: LocalId,
        class: ClassId,
        bases: Box<[Operand]>,
        keywords: Box<[(Name, Operand)]>,
        decorators: Box<[Operand]>,
    },
    /// `import a.b` binds `a` (`path` = `a`, `loads` = `a.b`); `import a.b as c` binds `c` to `a.b`;
    /// `from a import b as c` binds `c` with `path` = `a`, `member` = `b`. `level` counts leading dots.
    Import {
        dst: LocalId,
        path: Name,
        member: Option<Name>,
        level: u32,
        loads: Name,
    },
    ImportStar {
        path: Name,
        level: u32,
    },
    /// Adds an element to the list, set or dict under construction by a comprehension. Parts: value.
    Append {
        collection: LocalId,
        key: Option<Operand>,
        value: Operand,
    },
    Delete {
        local: LocalId,
    },
}

impl Stmt {
    /// The blocks inside a statement, in the order of the source.
    #[inline]
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        (0..).map_while(|at| self.block(at))
    }

    fn block(&self, at: usize) -> Option<&Block> {
        match self {
            Stmt::If { then, orelse, .. } => [then, orelse].get(at).copied(),
            Stmt::For { body, orelse, .. } => [body, orelse].get(at).copied(),
            Stmt::While { head, body, orelse, .. } => [head, body, orelse].get(at).copied(),
            Stmt::With { body, .. } => [body].get(at).copied(),
            Stmt::Try { body, handlers, orelse, finally } => match at.checked_sub(1) {
                None => Some(body),
                Some(at) => handlers.get(at).or_else(|| [orelse, finally].get(at - handlers.len()).copied()),
            },
            Stmt::Assign { .. }
            | Stmt::SetGlobal { .. }
            | Stmt::SetAttr { .. }
            | Stmt::SetItem { .. }
            | Stmt::Unpack { .. }
            | Stmt::Assert { .. }
            | Stmt::Return { .. }
            | Stmt::Raise
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Def { .. }
            | Stmt::Class { .. }
            | Stmt::Import { .. }
            | Stmt::ImportStar { .. }
            | Stmt::Append { .. }
            | Stmt::Delete { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits, a float or a complex number; bits of the float where there is one.
    Float(u64),
    Str(Name),
    Ellipsis,
}

impl Const {
    /// Whether it is this number, written with a fraction or without.
    pub fn is_number(&self, number: f64) -> bool {
        match self {
            Const::Int(n) => *n as f64 == number,
            Const::Float(bits) => f64::from_bits(*bits) == number,
            Const::None | Const::Bool(_) | Const::Str(_) | Const::Ellipsis => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Local(LocalId),
    Global(Name),
    Const(Const),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    pub kind: ArgKind,
    pub value: Operand,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgKind {
    Positional,
    Keyword(Name),
    /// `*value`
    Star,
    /// `**value`
    DoubleStar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    MatMul,
    Div,
    FloorDiv,
    Mod,
    Pow,
    LShift,
    RShift,
    BitAnd,
    BitOr,
    BitXor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnOp {
    Neg,
    Pos,
    Invert,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Is,
    IsNot,
    In,
    NotIn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildKind {
    Tuple,
    List,
    Set,
    /// Items alternate key, value; a `**d` entry is `Star(d)`.
    Dict,
    /// Three items: start, stop, step (`None` constants where absent).
    Slice,
    /// An f-string or a concatenation of strings.
    Str,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    One(Operand),
    /// `*x`, or `**x` in a dict.
    Star(Operand),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Rvalue {
    /// Parts: operand.
    Use(Operand),
    /// Parts: base.
    Attr {
        base: Operand,
        name: Name,
    },
    /// Parts: base, index.
    Item {
        base: Operand,
        index: Operand,
    },
    /// Parts: callee, then arguments in order.
    Call {
        callee: Operand,
        args: Box<[Arg]>,
    },
    /// `base.name(args)`. Parts: base, then arguments in order.
    CallMethod {
        base: Operand,
        name: Name,
        args: Box<[Arg]>,
    },
    /// Parts: operand.
    Unary {
        op: UnOp,
        operand: Operand,
    },
    /// Parts: left, right.
    Binary {
        op: BinOp,
        left: Operand,
        right: Operand,
    },
    /// `left op= right`: mutates a tensor on the left, otherwise as `Binary`. Parts: left, right.
    InPlace {
        op: BinOp,
        left: Operand,
        right: Operand,
    },
    /// Parts: left, right. Chains are conjunctions.
    Compare {
        op: CmpOp,
        left: Operand,
        right: Operand,
    },
    /// `and` / `or` of operands without side effects (others become `If`). Parts: operands.
    Bool {
        and: bool,
        operands: Box<[Operand]>,
    },
    /// Parts: items.
    Build {
        kind: BuildKind,
        items: Box<[Item]>,
    },
    /// A lambda; defaults as in `Def`.
    Closure {
        func: FuncId,
        defaults: Box<[(u32, Operand)]>,
    },
    /// `yield`, `await`: the operand, where there is one.
    Yield(Operand),
    Await(Operand),
    /// What lowering does not understand.
    Opaque,
}
