//! What a function or a constructor shows at first sight, so that most are never flattened into steps. In: statements. Out: [`Glance`],
//! and whether a constructor may mark parameters. Never: a finding, or the absence of one where a check would look further.
//! Next: `mod.rs`, which asks.

use super::marks::Marks;
use super::view::may_communicate;
use super::{Lint, switch};
use crate::ir::{Block, Const, Func, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::RuleBook;
use crate::source::Name;
use rustc_hash::FxHashMap;

/// What the statements of a function show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    /// Something that may communicate is called.
    pub communicates: bool,
    /// Something is summed by a method, as counts are.
    pub counts: bool,
    /// A switch may be read.
    pub switches: bool,
    /// An attribute is set by its name.
    pub set_by_name: bool,
}

/// What is looked for in the functions of a module.
pub struct Glancer<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    module: ModuleId,
    /// Whether the text of the file names anything that communicates.
    communicates: bool,
    /// Whether functions of a name may communicate, of names that were met.
    known: FxHashMap<&'a Name, bool>,
}

impl<'a> Glancer<'a> {
    pub fn new(project: &'a Project, rules: &'a RuleBook, module: ModuleId, communicates: bool) -> Glancer<'a> {
        Glancer { project, rules, module, communicates, known: FxHashMap::default() }
    }

    /// Looks at the statements of a function; attributes that are set are added to the marks. `switches`: whether its text has words of
    /// switches.
    pub fn look(&mut self, func: &'a Func, switches: bool, marks: &mut Marks) -> Glance {
        let mut out = Glance::default();
        let mut locals = Vec::new();
        self.block(&func.body, switches, marks, &mut locals, &mut out);
        out.communicates |= locals.into_iter().any(|local| may_be_path(&func.body, local));
        out
    }

    /// Whether a function calls something that may communicate.
    pub fn communicates(&mut self, func: &'a Func) -> bool {
        self.look(func, false, &mut Marks::default()).communicates
    }

    fn block(
        &mut self,
        block: &'a Block,
        switches: bool,
        marks: &mut Marks,
        locals: &mut Vec<LocalId>,
        out: &mut Glance,
    ) {
        for node in block {
            if switches && !out.switches {
                out.switches = reads_switch(&node.stmt);
            }
            match &node.stmt {
                Stmt::Assign { value, .. } => self.value(value, locals, out),
                Stmt::SetAttr { name, .. } => marks.add(name),
                stmt => stmt.blocks().for_each(|inner| self.block(inner, switches, marks, locals, out)),
            }
        }
    }

    fn value(&mut self, value: &'a Rvalue, locals: &mut Vec<LocalId>, out: &mut Glance) {
        match value {
            Rvalue::CallMethod { name, .. } => {
                out.counts |= matches!(name.as_str(), "sum" | "count_nonzero");
            }
            Rvalue::Call { callee: Operand::Global(name), .. } => out.set_by_name |= name == "setattr",
            Rvalue::Call { .. } => {}
            _ => return,
        }
        if !self.communicates || out.communicates {
            return;
        }
        let may = || may_communicate(self.project, self.rules, self.module, value);
        match value {
            Rvalue::Call { callee: Operand::Global(name), .. } => {
                out.communicates = match self.known.get(name) {
                    Some(known) => *known,
                    None => {
                        let may = may();
                        self.known.insert(name, may);
                        may
                    }
                }
            }
            // What a variable holds is looked at when all of the function is known.
            Rvalue::Call { callee: Operand::Local(local), .. } => locals.push(*local),
            _ => out.communicates = may(),
        }
    }
}

/// Whether a variable may stand for a name of a module: one that is imported, or read of something.
fn may_be_path(block: &Block, local: LocalId) -> bool {
    block.iter().any(|node| match &node.stmt {
        Stmt::Assign { dst, value } => {
            *dst == local && matches!(value, Rvalue::Use(_) | Rvalue::Attr { .. } | Rvalue::Await(_))
        }
        Stmt::Import { dst, .. } => *dst == local,
        Stmt::Unpack { before, star, after, .. } => before.iter().chain(star).chain(after).any(|l| *l == local),
        stmt => stmt.blocks().any(|inner| may_be_path(inner, local)),
    })
}

/// Whether a statement may read a switch, by an attribute, a method or a name in a string.
fn reads_switch(stmt: &Stmt) -> bool {
    let named = match stmt {
        Stmt::Assign { value: Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. }, .. } => {
            switch::is_switch(name) || name == "__dict__"
        }
        _ => false,
    };
    let text = |o: &&Operand| matches!(o, Operand::Const(Const::Str(text)) if switch::is_switch(text));
    named || stmt.operands().iter().any(text)
}

/// Whether the constructor of a class may mark parameters: itself, or through a function that it calls.
pub fn may_mark(lint: &Lint<'_>, class: ClassRef) -> bool {
    let init = lint.project.class(class).methods.iter().find(|(n, _)| n == "__init__");
    init.is_some_and(|(_, func)| {
        let at = FuncRef { module: class.module, func: *func };
        block_marks(lint, class.module, &lint.project.func(at).body)
    })
}

fn block_marks(lint: &Lint<'_>, module: ModuleId, block: &Block) -> bool {
    block.iter().any(|node| match &node.stmt {
        Stmt::SetAttr { name, .. } => super::marks::is_mark(lint, name),
        Stmt::Assign { value: Rvalue::Call { callee, .. }, .. } => call_marks(lint, module, callee),
        stmt => stmt.blocks().any(|inner| block_marks(lint, module, inner)),
    })
}

/// Whether what is called may mark what it is given.
fn call_marks(lint: &Lint<'_>, module: ModuleId, callee: &Operand) -> bool {
    let Operand::Global(name) = callee else { return true };
    if name == "setattr" {
        return true;
    }
    let Some(resolved) = lint.project.member(module, name) else { return lint.rules.may_mark(name) };
    match resolved {
        Resolved::Func(at) => {
            let f = lint.project.func(at);
            let text = lint.files[lint.project.file(at.module)].slice(f.span);
            lint.rules.may_mark(&f.name) || f.kind == FuncKind::Function && super::marks::says_mark(lint, text)
        }
        Resolved::External(path) => lint.rules.may_mark(path.rsplit('.').next().unwrap_or(&path)),
        Resolved::Class(_) | Resolved::Module(_) | Resolved::Package(_) => false,
        Resolved::Value(_, name) => lint.rules.may_mark(&name),
    }
}
