//! The statements and variables of a function: here, or set aside and lowered again when somebody asks. In: what lowering made. Out: a block, its
//! spans and variables. Never: a difference between the two: the same text is lowered to the same statements. Most functions of a large tree are never
//! executed, and their statements would be half of the memory of a run. Next: `tables.rs`.

use super::{Block, FileIr, Func, FuncId, FuncKind, Locals, Spans};
use crate::source::{Idx, Span};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The statements of a function, where they are, and its variables.
#[derive(Clone)]
pub struct Code(Kept);

#[derive(Clone)]
enum Kept {
    /// In a box, so that a function that is set aside takes no room for it.
    Here(Box<(Block, Spans, Locals)>),
    Aside(Arc<Aside>),
}

/// Statements that take less memory than what lowers them again.
const WORTH: usize = 4;

/// Lowers a function again: of a text, the one with this number and span.
pub type Lower = fn(&str, FuncId, Span) -> Code;

/// A function that is lowered again if need be.
struct Aside {
    text: Arc<String>,
    lower: Lower,
    func: FuncId,
    span: Span,
    /// How many statements it has.
    len: usize,
    again: OnceLock<Box<Code>>,
}

impl Aside {
    fn code(&self) -> &Code {
        self.again.get_or_init(|| Box::new((self.lower)(&self.text, self.func, self.span)))
    }
}

impl Default for Code {
    fn default() -> Code {
        Code::new(Block::default(), Spans::default(), Locals::default())
    }
}

impl Code {
    pub fn new(body: Block, spans: Spans, locals: Locals) -> Code {
        Code(Kept::Here(Box::new((body, spans, locals))))
    }

    #[inline]
    pub fn body(&self) -> &Block {
        match &self.0 {
            Kept::Here(here) => &here.0,
            Kept::Aside(aside) => aside.code().body(),
        }
    }

    #[inline]
    pub fn spans(&self) -> &Spans {
        match &self.0 {
            Kept::Here(here) => &here.1,
            Kept::Aside(aside) => aside.code().spans(),
        }
    }

    #[inline]
    pub fn locals(&self) -> &Locals {
        match &self.0 {
            Kept::Here(here) => &here.2,
            Kept::Aside(aside) => aside.code().locals(),
        }
    }

    /// The same at a later place of a file.
    pub fn shifted(mut self, by: u32) -> Code {
        if let Kept::Here(here) = &mut self.0 {
            here.1.shift(by);
        }
        self
    }

    /// The number of statements, those of inner blocks included.
    pub fn count(&self) -> usize {
        match &self.0 {
            Kept::Here(here) => here.1.len(),
            Kept::Aside(aside) => aside.len,
        }
    }
}

impl FileIr {
    /// Sets the statements of functions aside that are as asked and that can be lowered without the rest of the file: `lower` makes the
    /// same of `text` again.
    pub fn set_aside(&mut self, text: &Arc<String>, lower: Lower, asked: impl Fn(FuncId, &Func) -> bool) {
        let is_alone = self.lowered_alone();
        for (id, is_alone) in self.funcs.ids().zip(is_alone) {
            let func = &mut self.funcs[id];
            if is_alone && func.code.count() >= WORTH && asked(id, func) {
                let (span, len) = (func.span, func.code.count());
                let aside = Aside { text: text.clone(), lower, func: id, span, len, again: OnceLock::new() };
                func.code = Code(Kept::Aside(Arc::new(aside)));
            }
        }
    }

    /// Of each function, whether its text alone is lowered to its statements: it defines nothing, uses no variable of another one, and
    /// no comment of the file says anything of its types.
    pub fn lowered_alone(&self) -> Vec<bool> {
        let is_silent = self.directives.is_empty() && self.suppressions.is_empty();
        let alone = |func: &Func| {
            is_silent
                && func.kind == FuncKind::Function
                && func.captures.is_empty()
                && func.claims.is_empty()
                && func.signature.is_empty()
        };
        let mut out: Vec<bool> = self.funcs.iter().map(alone).collect();
        self.funcs.iter().filter_map(|func| func.parent).for_each(|parent| out[parent.index()] = false);
        out
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Code) -> bool {
        (self.body(), self.spans(), self.locals()) == (other.body(), other.spans(), other.locals())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.body(), self.spans(), self.locals()).fmt(f)
    }
}
