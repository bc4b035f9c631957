//! Which names of a function are its own, and what a name that is read or written refers to.
//!
//! In: the statements of a body. Out: slots, captures, globals. Never: names of other files. Next: `target.rs` (who
//! binds).

use super::{Lowerer, span};
use crate::ir::{FuncKind, Local, LocalId, LocalKind, Operand};
use crate::source::{Idx, Name};
use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{ExceptHandler, Expr, Pattern, Stmt};

/// What a name means in one function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binding {
    Local(LocalId),
    /// Declared `global`, or found nowhere between here and the module.
    Global,
}

impl<'a> Lowerer<'a> {
    /// Gives every variable of the innermost function its slot. Nested functions are not entered.
    pub(super) fn collect_bindings(&mut self, body: &'a [Stmt]) {
        let mut nonlocals = Vec::new();
        self.collect_block(body, &mut nonlocals);
        for name in nonlocals {
            let level = self.stack.len() - 1;
            let binding = self.capture(level, name).map_or(Binding::Global, Binding::Local);
            self.cur().names.insert(name, binding);
        }
    }

    fn collect_block(&mut self, body: &'a [Stmt], nonlocals: &mut Vec<&'a str>) {
        for stmt in body {
            self.collect_stmt(stmt, nonlocals);
        }
    }

    fn collect_stmt(&mut self, stmt: &'a Stmt, nonlocals: &mut Vec<&'a str>) {
        self.collect_walrus(stmt);
        match stmt {
            Stmt::FunctionDef(def) => self.declare(&def.name),
            Stmt::ClassDef(def) => self.declare(&def.name),
            Stmt::Delete(del) => del.targets.iter().for_each(|t| self.declare_target(t)),
            Stmt::Assign(assign) => assign.targets.iter().for_each(|t| self.declare_target(t)),
            Stmt::AugAssign(assign) => self.declare_target(&assign.target),
            Stmt::AnnAssign(assign) => self.declare_target(&assign.target),
            Stmt::For(node) => {
                self.declare_target(&node.target);
                self.collect_block(&node.body, nonlocals);
                self.collect_block(&node.orelse, nonlocals);
            }
            Stmt::While(node) => {
                self.collect_block(&node.body, nonlocals);
                self.collect_block(&node.orelse, nonlocals);
            }
            Stmt::If(node) => {
                self.collect_block(&node.body, nonlocals);
                node.elif_else_clauses.iter().for_each(|c| self.collect_block(&c.body, nonlocals));
            }
            Stmt::With(node) => {
                node.items.iter().filter_map(|i| i.optional_vars.as_deref()).for_each(|t| self.declare_target(t));
                self.collect_block(&node.body, nonlocals);
            }
            Stmt::Match(node) => {
                for case in &node.cases {
                    self.declare_pattern(&case.pattern);
                    self.collect_block(&case.body, nonlocals);
                }
            }
            Stmt::Try(node) => {
                self.collect_block(&node.body, nonlocals);
                for ExceptHandler::ExceptHandler(handler) in &node.handlers {
                    handler.name.iter().for_each(|n| self.declare(n));
                    self.collect_block(&handler.body, nonlocals);
                }
                self.collect_block(&node.orelse, nonlocals);
                self.collect_block(&node.finalbody, nonlocals);
            }
            Stmt::Import(node) => {
                for alias in &node.names {
                    let first = alias.name.split('.').next().unwrap_or_default();
                    self.declare(alias.asname.as_ref().map_or(first, |n| n.as_str()));
                }
            }
            Stmt::ImportFrom(node) => {
                for alias in node.names.iter().filter(|a| a.name.as_str() != "*") {
                    self.declare(alias.asname.as_ref().unwrap_or(&alias.name));
                }
            }
            Stmt::Global(node) => {
                if self.cur().kind != FuncKind::Module {
                    for name in &node.names {
                        self.cur().names.insert(name.as_str(), Binding::Global);
                    }
                }
            }
            Stmt::Nonlocal(node) => {
                for name in &node.names {
                    // Keeps later targets from declaring it; the capture is made once all bindings are known.
                    self.cur().names.insert(name.as_str(), Binding::Global);
                    nonlocals.push(name.as_str());
                }
            }
            Stmt::Return(_)
            | Stmt::TypeAlias(_)
            | Stmt::Raise(_)
            | Stmt::Assert(_)
            | Stmt::Expr(_)
            | Stmt::Pass(_)
            | Stmt::Break(_)
            | Stmt::Continue(_)
            | Stmt::IpyEscapeCommand(_) => {}
        }
    }

    pub(super) fn declare(&mut self, name: &'a str) {
        if !self.cur().names.contains_key(name) {
            let local = Local { name: self.word(name), kind: LocalKind::Plain };
            let here = self.cur();
            let id = here.locals.push(local);
            here.names.insert(name, Binding::Local(id));
        }
    }

    /// A variable that shadows any other of its name, for a comprehension.
    pub(super) fn fresh(&mut self, name: &'a str) -> LocalId {
        let local = Local { name: self.word(name), kind: LocalKind::Plain };
        let here = self.cur();
        let id = here.locals.push(local);
        here.comprehension.push((name, id));
        id
    }

    fn declare_target(&mut self, target: &'a Expr) {
        // Targets nest in brackets, which `depth.rs` bounds; what is cut off here is cut off in `target.rs` as well.
        self.deeper(span(target), |this| match target {
            Expr::Name(name) => this.declare(name.id.as_str()),
            Expr::Tuple(tuple) => tuple.elts.iter().for_each(|t| this.declare_target(t)),
            Expr::List(list) => list.elts.iter().for_each(|t| this.declare_target(t)),
            Expr::Starred(starred) => this.declare_target(&starred.value),
            _ => {}
        });
    }

    fn declare_pattern(&mut self, pattern: &'a Pattern) {
        self.deeper(span(pattern), |this| pattern_names(pattern, &mut |name| this.declare(name)));
    }

    /// Declares what `:=` binds in the expressions of a statement. The text is searched for `:=` once; most statements
    /// have none.
    fn collect_walrus(&mut self, stmt: &'a Stmt) {
        let range = span(stmt);
        let next = self.walrus.partition_point(|&at| at < range.start);
        if self.walrus.get(next).is_none_or(|&at| at >= range.end) {
            return;
        }
        let mut search = WalrusSearch { pending: Vec::new(), found: Vec::new() };
        search.roots(stmt);
        self.declare_found(search);
    }

    /// Declares what `:=` binds in the body of a lambda.
    pub(super) fn collect_walrus_expr(&mut self, expr: &'a Expr) {
        if !self.walrus.is_empty() {
            self.declare_found(WalrusSearch { pending: vec![expr], found: Vec::new() });
        }
    }

    fn declare_found(&mut self, mut search: WalrusSearch<'a>) {
        while let Some(expr) = search.pending.pop() {
            match expr {
                // A lambda binds its own.
                Expr::Lambda(_) => {}
                Expr::Named(named) => {
                    if let Expr::Name(name) = named.target.as_ref() {
                        search.found.push(name.id.as_str());
                    }
                    search.pending.push(&named.value);
                }
                _ => walk_expr(&mut search, expr),
            }
        }
        for name in search.found.into_iter().rev() {
            self.declare(name);
        }
    }

    /// What a name that is read stands for.
    pub(super) fn read(&mut self, name: &'a str) -> Operand {
        let level = self.stack.len() - 1;
        match self.resolve(level, name) {
            Some(id) => Operand::Local(id),
            None => Operand::Global(self.word(name)),
        }
    }

    /// The slot a name is stored in; `None` if it is a global. Comprehension variables do not count: `:=` skips them.
    pub(super) fn slot(&mut self, name: &'a str) -> Option<LocalId> {
        let slot = self.slot_before(name);
        if let Some(id) = slot {
            self.mark_assigned(id);
        }
        slot
    }

    /// Like `slot`, while the value is still to be evaluated: in `range = range` the value is not the slot.
    pub(super) fn slot_before(&mut self, name: &'a str) -> Option<LocalId> {
        self.declare(name);
        match self.cur().names.get(name) {
            Some(&Binding::Local(id)) => Some(id),
            Some(Binding::Global) | None => None,
        }
    }

    pub(super) fn mark_assigned(&mut self, id: LocalId) {
        let here = self.cur();
        if matches!(here.kind, FuncKind::Module | FuncKind::ClassBody) {
            if here.assigned.len() <= id.index() {
                here.assigned.resize(id.index() + 1, false);
            }
            here.assigned[id.index()] = true;
        }
    }

    /// The local of function `level` that `name` refers to, captured from outside if need be.
    fn resolve(&mut self, level: usize, name: &'a str) -> Option<LocalId> {
        let here = &self.stack[level];
        if let Some(&(_, id)) = here.comprehension.iter().rev().find(|(n, _)| *n == name) {
            return Some(id);
        }
        match here.names.get(name) {
            Some(&Binding::Local(id)) => {
                // `range = range` in a module or class body reads what is outside.
                let body = matches!(here.kind, FuncKind::Module | FuncKind::ClassBody);
                let above = here.assigned.get(id.index()).copied().unwrap_or(false) || here.loops > 0;
                if body && !above { self.capture(level, name) } else { Some(id) }
            }
            Some(Binding::Global) => None,
            None => {
                let found = self.capture(level, name);
                if found.is_none() && self.stack[level].kind != FuncKind::ClassBody {
                    // Remembered, so that the enclosing functions are searched once.
                    self.stack[level].names.insert(name, Binding::Global);
                }
                found
            }
        }
    }

    /// Captures `name` from the functions around `level`, through all levels between.
    fn capture(&mut self, level: usize, name: &'a str) -> Option<LocalId> {
        let owner = (0..level).rev().find_map(|at| self.own(at, name).map(|id| (at, id)))?;
        let (at, mut id) = owner;
        let outer = &mut self.stack[at].locals[id];
        if outer.kind == LocalKind::Plain {
            outer.kind = LocalKind::Cell;
        }
        for inner in at + 1..=level {
            id = self.capture_into(inner, name, id);
        }
        Some(id)
    }

    /// The local of function `at` that nested functions see under `name`: not those of class bodies, nor of the module.
    fn own(&self, at: usize, name: &str) -> Option<LocalId> {
        let func = &self.stack[at];
        if let Some(&(_, id)) = func.comprehension.iter().rev().find(|(n, _)| *n == name) {
            return Some(id);
        }
        match (func.kind, func.names.get(name)) {
            (FuncKind::Module | FuncKind::ClassBody, _) => None,
            (FuncKind::Function | FuncKind::Lambda, Some(&Binding::Local(id))) => Some(id),
            (FuncKind::Function | FuncKind::Lambda, Some(Binding::Global) | None) => None,
        }
    }

    fn capture_into(&mut self, level: usize, name: &'a str, outer: LocalId) -> LocalId {
        let func = &mut self.stack[level];
        if let Some(&(_, id)) = func.captures.iter().find(|(from, _)| *from == outer) {
            return id;
        }
        let id = func.locals.push(Local { name: Name::from(name), kind: LocalKind::Captured });
        func.captures.push((outer, id));
        // A class body may have a variable of that name, which its methods do not see.
        if func.kind != FuncKind::ClassBody {
            func.names.insert(name, Binding::Local(id));
        }
        id
    }
}

/// Calls `found` for every name that a pattern binds. Patterns nest in brackets, which `depth.rs` bounds.
pub(super) fn pattern_names<'a>(pattern: &'a Pattern, found: &mut dyn FnMut(&'a str)) {
    match pattern {
        Pattern::MatchValue(_) | Pattern::MatchSingleton(_) => {}
        Pattern::MatchSequence(node) => node.patterns.iter().for_each(|p| pattern_names(p, found)),
        Pattern::MatchMapping(node) => {
            node.patterns.iter().for_each(|p| pattern_names(p, found));
            node.rest.iter().for_each(|n| found(n.as_str()));
        }
        Pattern::MatchClass(node) => {
            node.arguments.patterns.iter().for_each(|p| pattern_names(p, found));
            node.arguments.keywords.iter().for_each(|k| pattern_names(&k.pattern, found));
        }
        Pattern::MatchStar(node) => node.name.iter().for_each(|n| found(n.as_str())),
        Pattern::MatchAs(node) => {
            node.pattern.iter().for_each(|p| pattern_names(p, found));
            node.name.iter().for_each(|n| found(n.as_str()));
        }
        Pattern::MatchOr(node) => node.patterns.iter().for_each(|p| pattern_names(p, found)),
    }
}

/// Collects expressions onto a list instead of recursing into them, so that long chains need no stack.
struct WalrusSearch<'a> {
    pending: Vec<&'a Expr>,
    found: Vec<&'a str>,
}

impl<'a> Visitor<'a> for WalrusSearch<'a> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        self.pending.push(expr);
    }
}

impl<'a> WalrusSearch<'a> {
    /// The expressions of a statement that are evaluated in its own scope, nested blocks excluded.
    fn roots(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(def) => {
                self.pending.extend(def.decorator_list.iter().map(|d| &d.expression));
                self.pending.extend(def.parameters.iter_non_variadic_params().filter_map(|p| p.default.as_deref()));
            }
            Stmt::ClassDef(def) => {
                self.pending.extend(def.decorator_list.iter().map(|d| &d.expression));
                if let Some(arguments) = def.arguments.as_deref() {
                    self.pending.extend(&arguments.args);
                    self.pending.extend(arguments.keywords.iter().map(|k| &k.value));
                }
            }
            Stmt::For(node) => self.pending.push(&node.iter),
            Stmt::While(node) => self.pending.push(&node.test),
            Stmt::If(node) => {
                self.pending.push(&node.test);
                self.pending.extend(node.elif_else_clauses.iter().filter_map(|c| c.test.as_ref()));
            }
            Stmt::With(node) => self.pending.extend(node.items.iter().map(|i| &i.context_expr)),
            Stmt::Match(node) => {
                self.pending.push(&node.subject);
                self.pending.extend(node.cases.iter().filter_map(|c| c.guard.as_deref()));
            }
            Stmt::Try(node) => {
                for ExceptHandler::ExceptHandler(handler) in &node.handlers {
                    self.pending.extend(handler.type_.as_deref());
                }
            }
            // No blocks inside: the visitor reaches only expressions.
            _ => ruff_python_ast::visitor::walk_stmt(self, stmt),
        }
    }
}
