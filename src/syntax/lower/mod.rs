//! The syntax tree to the intermediate representation, one function at a time, in evaluation order.
//!
//! In: the parser's tree, the comments of the file. Out: functions and classes of a [`crate::ir::FileIr`]. Never:
//! failing: what is not understood becomes [`Rvalue::Opaque`]. Next: `scope.rs` (names), `stmt.rs`, `expr.rs`.

mod chain;
mod compound;
mod comprehension;
mod define;
mod expr;
mod literal;
mod matching;
mod scope;
mod stmt;
mod target;

use crate::ir::{
    Block, Class, ClassId, Code, Func, FuncId, FuncKind, Local, LocalId, LocalKind, Locals, Node, Operand,
};
use crate::ir::{Param, Rvalue, SpansSoFar, Stmt, StmtId};
use crate::source::{Idx, IndexVec, Name, Span};
use crate::syntax::attach::Claims;
use ruff_python_ast::ModModule;
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use scope::Binding;

/// Nesting beyond this is not followed: expressions become opaque, blocks empty.
const MAX_DEPTH: u32 = 1_000;

pub(super) type Parts = Box<[Span]>;

/// What lowering a module gives.
pub(super) struct Lowered {
    pub funcs: IndexVec<FuncId, Func>,
    pub classes: IndexVec<ClassId, Class>,
    /// Where nesting was first cut off.
    pub too_deep: Option<Span>,
    pub claims: Claims,
}

pub(super) fn lower(text: &str, module: &ModModule, claims: Claims) -> Lowered {
    // Most texts have none, which is found out faster than where they are.
    let walrus = match text.contains(":=") {
        true => text.match_indices(":=").map(|(at, _)| at as u32).collect(),
        false => Vec::new(),
    };
    let mut lowerer = Lowerer {
        text,
        funcs: Vec::new(),
        classes: Vec::new(),
        stack: Vec::new(),
        depth: 0,
        too_deep: None,
        walrus,
        claims,
        spare: Spare::default(),
        words: FxHashMap::default(),
    };
    let span = Span::new(0, text.len() as u32);
    lowerer.enter(FuncKind::Module, Name::from("<module>"), None, span, Span::new(0, 0));
    lowerer.collect_bindings(&module.body);
    lowerer.docstring(&module.body);
    lowerer.stmts(&module.body);
    lowerer.leave();
    let mut lowered = Lowered {
        funcs: IndexVec::with_room(lowerer.funcs.len()),
        classes: IndexVec::with_room(lowerer.classes.len()),
        too_deep: lowerer.too_deep,
        claims: lowerer.claims,
    };
    for func in lowerer.funcs {
        lowered.funcs.push(func.expect("every function that was entered was left"));
    }
    for class in lowerer.classes {
        lowered.classes.push(class.expect("every class that was entered was left"));
    }
    lowered
}

pub(super) fn span(node: &impl Ranged) -> Span {
    let range = node.range();
    Span::new(range.start().to_u32(), range.end().to_u32())
}

/// An expression after lowering: something to name, or an operation that still needs a slot.
enum Value {
    Operand(Operand),
    Rvalue(Rvalue, Parts),
}

struct Lowerer<'a> {
    text: &'a str,
    /// By [`FuncId`]; `None` while being lowered.
    funcs: Vec<Option<Func>>,
    classes: Vec<Option<Class>>,
    /// The functions being lowered, the module first.
    stack: Vec<Builder<'a>>,
    depth: u32,
    too_deep: Option<Span>,
    /// Offsets of `:=`, ascending: most functions have none, and then their expressions are not searched for bindings.
    walrus: Vec<u32>,
    claims: Claims,
    spare: Spare,
    /// Long names, so that what a file says often is kept once.
    words: FxHashMap<&'a str, Name>,
}

/// Memory for what is under construction; what is complete is kept without room to grow.
#[derive(Default)]
struct Spare {
    blocks: Vec<Vec<Node>>,
    locals: Vec<Locals>,
    spans: Vec<SpansSoFar>,
}

impl Spare {
    /// A block without room to grow.
    fn exact(&mut self, mut block: Vec<Node>) -> Block {
        let mut out = Vec::with_capacity(block.len());
        out.append(&mut block);
        self.blocks.push(block);
        out.into()
    }
}

/// A function under construction.
struct Builder<'a> {
    id: FuncId,
    kind: FuncKind,
    name: Name,
    class: Option<ClassId>,
    /// The class whose body this is, and its methods so far.
    methods: Vec<(Name, FuncId)>,
    params: Vec<Param>,
    locals: Locals,
    captures: Vec<(LocalId, LocalId)>,
    names: FxHashMap<&'a str, Binding>,
    /// Variables of the comprehensions being lowered, innermost last.
    comprehension: Vec<(&'a str, LocalId)>,
    /// By local, in a module or class body: whether text above assigns it.
    assigned: Vec<bool>,
    loops: u32,
    block: Vec<Node>,
    spans: SpansSoFar,
    span: Span,
    name_span: Span,
    is_async: bool,
    is_generator: bool,
    sets_attribute: bool,
    docstring: Option<Span>,
}

impl<'a> Lowerer<'a> {
    fn enter(&mut self, kind: FuncKind, name: Name, class: Option<ClassId>, span: Span, name_span: Span) -> FuncId {
        let id = FuncId::from_index(self.funcs.len());
        self.funcs.push(None);
        let spare = &mut self.spare;
        let (block, locals, spans) = (spare.blocks.pop(), spare.locals.pop(), spare.spans.pop());
        self.stack.push(Builder {
            id,
            kind,
            name,
            class,
            methods: Vec::new(),
            params: Vec::new(),
            locals: locals.unwrap_or_default(),
            captures: Vec::new(),
            names: FxHashMap::default(),
            comprehension: Vec::new(),
            assigned: Vec::new(),
            loops: 0,
            block: block.unwrap_or_default(),
            spans: spans.unwrap_or_default(),
            span,
            name_span,
            is_async: false,
            is_generator: false,
            sets_attribute: false,
            docstring: None,
        });
        id
    }

    /// Ends the innermost function; returns its methods, if it is a class body.
    fn leave(&mut self) -> Vec<(Name, FuncId)> {
        let mut done = self.stack.pop().expect("a function is being lowered");
        let (locals, spans) = (done.locals.exact(), done.spans.exact());
        self.spare.locals.push(done.locals);
        self.spare.spans.push(done.spans);
        let body = self.spare.exact(done.block);
        let ends_in_raise = matches!(body.last(), Some(Node { stmt: Stmt::Raise, .. }));
        let func = Func {
            name: done.name,
            kind: done.kind,
            class: done.class,
            parent: self.stack.last().map(|b| b.id),
            params: done.params.into(),
            captures: done.captures.into(),
            code: Code::new(body, spans, locals),
            signature: Box::default(),
            claims: Box::default(),
            span: done.span,
            name_span: done.name_span,
            is_async: done.is_async,
            is_generator: done.is_generator,
            sets_attribute: done.sets_attribute,
            ends_in_raise,
            docstring: done.docstring,
        };
        self.funcs[done.id.index()] = Some(func);
        done.methods
    }

    fn cur(&mut self) -> &mut Builder<'a> {
        self.stack.last_mut().expect("a function is being lowered")
    }

    /// Qualified and plain name of something defined here under `name`.
    /// `Class.name`, `outer.<locals>.name` of a class that is defined here.
    fn qualname(&self, name: &str) -> Name {
        let mut out = String::new();
        for around in &self.stack {
            out.push_str(&crate::ir::prefix(around.kind, &around.name));
        }
        Name::from(out + name)
    }

    /// An identifier as a name.
    fn word(&mut self, word: &'a str) -> Name {
        if word.len() <= Name::INLINE_LIMIT {
            return Name::from(word);
        }
        self.words.entry(word).or_insert_with(|| Name::from(word)).clone()
    }

    fn temp(&mut self) -> LocalId {
        self.cur().locals.push(Local { name: Name::default(), kind: LocalKind::Temp })
    }

    /// Takes the next statement id, before the statement itself is complete.
    fn reserve(&mut self, span: Span, parts: Parts) -> StmtId {
        self.cur().spans.push(span, &parts)
    }

    fn push(&mut self, id: StmtId, stmt: Stmt) {
        self.cur().sets_attribute |= matches!(stmt, Stmt::SetAttr { .. });
        self.cur().block.push(Node { id, stmt });
    }

    fn emit(&mut self, stmt: Stmt, span: Span, parts: Parts) -> StmtId {
        let id = self.reserve(span, parts);
        self.push(id, stmt);
        id
    }

    fn assign(&mut self, dst: LocalId, value: Rvalue, span: Span, parts: Parts) -> StmtId {
        self.emit(Stmt::Assign { dst, value }, span, parts)
    }

    fn assign_temp(&mut self, value: Rvalue, span: Span, parts: Parts) -> Operand {
        let dst = self.temp();
        self.assign(dst, value, span, parts);
        Operand::Local(dst)
    }

    /// What `f` emits, as a block of its own.
    fn block(&mut self, f: impl FnOnce(&mut Self)) -> Block {
        let inner = self.spare.blocks.pop().unwrap_or_default();
        let outer = std::mem::replace(&mut self.cur().block, inner);
        f(self);
        let inner = std::mem::replace(&mut self.cur().block, outer);
        self.spare.exact(inner)
    }

    /// Runs `f` one level deeper, or gives `None` where nesting is cut off.
    fn deeper<T>(&mut self, at: Span, f: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            self.too_deep.get_or_insert(at);
            return None;
        }
        self.depth += 1;
        let value = f(self);
        self.depth -= 1;
        Some(value)
    }
}
