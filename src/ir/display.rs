//! A lowered file as simplified Python, one statement a line.
//!
//! In: a [`FileIr`]. Out: text for the hidden `dump-ir` command and for tests: globals as `@name`, temporaries as `%3`,
//! a second variable of the same name as `x'7`. Never: spans, and nothing that another program should parse. Next:
//! `mod.rs`.

use super::annotation::Annotation;
use super::{
    Arg, ArgKind, BinOp, Block, BuildKind, Class, CmpOp, Const, FileIr, Func, FuncId, FuncKind, Item, LocalId,
};
use super::{Claim, ClaimTarget, LocalKind, Operand, ParamKind, Rvalue, Stmt, StmtId, UnOp};
use crate::source::{Idx, Name};
use std::fmt::Write;

/// The whole file, nested functions at the place where they are defined.
pub fn dump(ir: &FileIr) -> String {
    let mut out = String::new();
    if let Some(module) = ir.funcs.get(FuncId(0)) {
        let mut dump = Dump { ir, func: module, out: &mut out, depth: 0 };
        dump.block(module.body());
    }
    out
}

struct Dump<'a> {
    ir: &'a FileIr,
    func: &'a Func,
    out: &'a mut String,
    depth: usize,
}

impl Dump<'_> {
    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.out.push_str("    ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn inner(&mut self, block: &Block) {
        self.depth += 1;
        if block.is_empty() {
            self.line("pass");
        }
        self.block(block);
        self.depth -= 1;
    }

    fn block(&mut self, block: &Block) {
        for node in block {
            self.stmt(&node.stmt);
            self.claims(node.id);
        }
    }

    fn claims(&mut self, stmt: StmtId) {
        let func = self.func;
        for claim in func.claims.iter().filter(|c| c.stmt == stmt) {
            let text = self.claim(claim);
            self.line(&text);
        }
    }

    fn claim(&self, claim: &Claim) -> String {
        let targets: Vec<_> = claim
            .targets
            .iter()
            .map(|target| match target {
                ClaimTarget::Local(id) => self.local(*id),
                ClaimTarget::Attr(base, name) => format!("{}.{name}", self.operand(base)),
                ClaimTarget::Other => "?".to_string(),
            })
            .collect();
        let place = if claim.trailing { "claim" } else { "claim above" };
        format!("# {place} [{}] {}", targets.join(", "), annotation(&claim.annotation))
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::If { test, then, orelse } => {
                self.line(&format!("if {}:", self.operand(test)));
                self.inner(then);
                self.orelse(orelse);
            }
            Stmt::For { dst, iter, body, orelse } => {
                self.line(&format!("for {} in {}:", self.local(*dst), self.operand(iter)));
                self.inner(body);
                self.orelse(orelse);
            }
            Stmt::While { head, test, body, orelse } => {
                self.line("while:");
                self.inner(head);
                self.line(&format!("holds {}:", self.operand(test)));
                self.inner(body);
                self.orelse(orelse);
            }
            Stmt::With { context, bind, body } => {
                let bind = bind.map_or(String::new(), |id| format!(" as {}", self.local(id)));
                self.line(&format!("with {}{bind}:", self.operand(context)));
                self.inner(body);
            }
            Stmt::Try { body, handlers, orelse, finally } => {
                self.line("try:");
                self.inner(body);
                for handler in handlers {
                    self.line("except:");
                    self.inner(handler);
                }
                self.orelse(orelse);
                if !finally.is_empty() {
                    self.line("finally:");
                    self.inner(finally);
                }
            }
            Stmt::Def { dst, func, defaults, decorators } => {
                decorators.iter().for_each(|d| self.line(&format!("@{}", self.operand(d))));
                let header = self.header(*func, defaults);
                self.line(&format!("def {}{header}:", self.local(*dst)));
                self.function(*func);
            }
            Stmt::Class { dst, class, bases, keywords, decorators } => {
                decorators.iter().for_each(|d| self.line(&format!("@{}", self.operand(d))));
                let bases = bases.iter().map(|b| self.operand(b));
                let keywords = keywords.iter().map(|(name, value)| format!("{name}={}", self.operand(value)));
                let arguments: Vec<_> = bases.chain(keywords).collect();
                self.line(&format!("class {}({}):", self.local(*dst), arguments.join(", ")));
                let ir = self.ir;
                let Class { body, .. } = &ir.classes[*class];
                self.function(*body);
            }
            Stmt::Assign { dst, value: Rvalue::Closure { func, defaults } } => {
                let header = self.header(*func, defaults);
                self.line(&format!("{} = lambda{header}:", self.local(*dst)));
                self.function(*func);
            }
            simple => {
                let text = self.simple(simple);
                self.line(&text);
            }
        }
    }

    fn orelse(&mut self, block: &Block) {
        if !block.is_empty() {
            self.line("else:");
            self.inner(block);
        }
    }

    /// The body of a nested function, with its comments.
    fn function(&mut self, id: FuncId) {
        let ir = self.ir;
        let func = &ir.funcs[id];
        let mut inner = Dump { ir, func, out: self.out, depth: self.depth + 1 };
        for signature in &func.signature {
            inner.line(&format!("# signature {}", annotation(signature)));
        }
        if func.body().is_empty() {
            inner.line("pass");
        }
        inner.block(func.body());
    }

    fn header(&self, id: FuncId, defaults: &[(u32, Operand)]) -> String {
        let ir = self.ir;
        let func = &ir.funcs[id];
        let mut params = Vec::new();
        for (index, param) in func.params.iter().enumerate() {
            let mut text = match param.kind {
                ParamKind::PositionalOnly => format!("{}/", param.name),
                ParamKind::Normal => param.name.to_string(),
                ParamKind::VarArgs => format!("*{}", param.name),
                ParamKind::KeywordOnly => format!("*, {}", param.name),
                ParamKind::KwArgs => format!("**{}", param.name),
            };
            if let Some(hint) = &param.hint {
                let _ = write!(text, ": {hint}");
            }
            if let Some((_, value)) = defaults.iter().find(|(i, _)| *i as usize == index) {
                let _ = write!(text, "={}", self.operand(value));
            }
            params.push(text);
        }
        let mut text = format!("({})", params.join(", "));
        if !func.captures.is_empty() {
            let names: Vec<_> = func.captures.iter().map(|(outer, _)| self.local(*outer)).collect();
            let _ = write!(text, " captures {}", names.join(", "));
        }
        let kind = match func.kind {
            FuncKind::Function if func.is_async => " async",
            FuncKind::Module | FuncKind::ClassBody | FuncKind::Function | FuncKind::Lambda => "",
        };
        text.push_str(kind);
        if func.is_generator {
            text.push_str(" generator");
        }
        text
    }

    fn simple(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::Assign { dst, value } => format!("{} = {}", self.local(*dst), self.rvalue(value)),
            Stmt::SetGlobal { name, value } => format!("@{name} = {}", self.operand(value)),
            Stmt::SetAttr { base, name, value } => format!("{}.{name} = {}", self.operand(base), self.operand(value)),
            Stmt::SetItem { base, index, value } => {
                format!("{}[{}] = {}", self.operand(base), self.operand(index), self.operand(value))
            }
            Stmt::Unpack { value, before, star, after } => {
                let before = before.iter().map(|id| self.local(*id));
                let star = star.iter().map(|id| format!("*{}", self.local(*id)));
                let after = after.iter().map(|id| self.local(*id));
                let targets: Vec<_> = before.chain(star).chain(after).collect();
                format!("({}) = {}", targets.join(", "), self.operand(value))
            }
            Stmt::Assert { test } => format!("assert {}", self.operand(test)),
            Stmt::Return { value } => format!("return {}", self.operand(value)),
            Stmt::Raise => "raise".to_string(),
            Stmt::Break => "break".to_string(),
            Stmt::Continue => "continue".to_string(),
            Stmt::Import { dst, path, member, level, loads } => {
                let dots = ".".repeat(*level as usize);
                match member {
                    Some(member) => format!("from {dots}{path} import {member} as {}", self.local(*dst)),
                    None if path == loads => format!("import {path} as {}", self.local(*dst)),
                    None => format!("import {path} as {} loading {loads}", self.local(*dst)),
                }
            }
            Stmt::ImportStar { path, level } => format!("from {}{path} import *", ".".repeat(*level as usize)),
            Stmt::Append { collection, key, value } => {
                let key = key.as_ref().map_or(String::new(), |k| format!("{}: ", self.operand(k)));
                format!("{} += {key}{}", self.local(*collection), self.operand(value))
            }
            Stmt::Delete { local } => format!("del {}", self.local(*local)),
            Stmt::If { .. }
            | Stmt::For { .. }
            | Stmt::While { .. }
            | Stmt::With { .. }
            | Stmt::Try { .. }
            | Stmt::Def { .. }
            | Stmt::Class { .. } => String::new(),
        }
    }

    fn rvalue(&self, value: &Rvalue) -> String {
        match value {
            Rvalue::Use(operand) => self.operand(operand),
            Rvalue::Attr { base, name } => format!("{}.{name}", self.operand(base)),
            Rvalue::Item { base, index } => format!("{}[{}]", self.operand(base), self.operand(index)),
            Rvalue::Call { callee, args } => format!("{}({})", self.operand(callee), self.args(args)),
            Rvalue::CallMethod { base, name, args } => format!("{}.{name}({})", self.operand(base), self.args(args)),
            Rvalue::Unary { op, operand } => format!("{}{}", unary(*op), self.operand(operand)),
            Rvalue::Binary { op, left, right } => {
                format!("{} {} {}", self.operand(left), binary(*op), self.operand(right))
            }
            Rvalue::InPlace { op, left, right } => {
                format!("{} {}= {}", self.operand(left), binary(*op), self.operand(right))
            }
            Rvalue::Compare { op, left, right } => {
                format!("{} {} {}", self.operand(left), compare(*op), self.operand(right))
            }
            Rvalue::Bool { and, operands } => {
                let operands: Vec<_> = operands.iter().map(|o| self.operand(o)).collect();
                operands.join(if *and { " and " } else { " or " })
            }
            Rvalue::Build { kind, items } => {
                let items: Vec<_> = items.iter().map(|i| self.item(i)).collect();
                format!("{}({})", build(*kind), items.join(", "))
            }
            Rvalue::Closure { .. } => "lambda".to_string(),
            Rvalue::Yield(operand) => format!("yield {}", self.operand(operand)),
            Rvalue::Await(operand) => format!("await {}", self.operand(operand)),
            Rvalue::Opaque => "opaque".to_string(),
        }
    }

    fn item(&self, item: &Item) -> String {
        match item {
            Item::One(operand) => self.operand(operand),
            Item::Star(operand) => format!("*{}", self.operand(operand)),
        }
    }

    fn args(&self, args: &[Arg]) -> String {
        let args: Vec<_> = args
            .iter()
            .map(|arg| match &arg.kind {
                ArgKind::Positional => self.operand(&arg.value),
                ArgKind::Keyword(name) => format!("{name}={}", self.operand(&arg.value)),
                ArgKind::Star => format!("*{}", self.operand(&arg.value)),
                ArgKind::DoubleStar => format!("**{}", self.operand(&arg.value)),
            })
            .collect();
        args.join(", ")
    }

    fn operand(&self, operand: &Operand) -> String {
        match operand {
            Operand::Local(id) => self.local(*id),
            Operand::Global(name) => format!("@{name}"),
            Operand::Const(value) => constant(value),
        }
    }

    fn local(&self, id: LocalId) -> String {
        let local = &self.func.locals()[id];
        match local.kind {
            LocalKind::Temp => format!("%{}", id.0),
            LocalKind::Plain | LocalKind::Cell | LocalKind::Captured => {
                let same = |name: &Name| *name == local.name;
                let first = self.func.locals().iter().position(|l| l.kind != LocalKind::Temp && same(&l.name));
                if first == Some(id.index()) { local.name.to_string() } else { format!("{}'{}", local.name, id.0) }
            }
        }
    }
}

/// The clauses of a comment, as they were parsed.
fn annotation(annotation: &Annotation) -> String {
    let kinds: Vec<_> = annotation.clauses.iter().map(|c| super::display_annotation::clause(&c.kind)).collect();
    kinds.join("; ")
}

fn constant(value: &Const) -> String {
    match value {
        Const::None => "None".to_string(),
        Const::Bool(true) => "True".to_string(),
        Const::Bool(false) => "False".to_string(),
        Const::Int(int) => int.to_string(),
        Const::Float(bits) => format!("{:?}", f64::from_bits(*bits)),
        Const::Str(text) => format!("{text:?}"),
        Const::Ellipsis => "...".to_string(),
    }
}

fn binary(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "+",
        BinOp::Sub => "-",
        BinOp::Mul => "*",
        BinOp::MatMul => "@",
        BinOp::Div => "/",
        BinOp::FloorDiv => "//",
        BinOp::Mod => "%",
        BinOp::Pow => "**",
        BinOp::LShift => "<<",
        BinOp::RShift => ">>",
        BinOp::BitAnd => "&",
        BinOp::BitOr => "|",
        BinOp::BitXor => "^",
    }
}

fn unary(op: UnOp) -> &'static str {
    match op {
        UnOp::Neg => "-",
        UnOp::Pos => "+",
        UnOp::Invert => "~",
        UnOp::Not => "not ",
    }
}

fn compare(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "==",
        CmpOp::Ne => "!=",
        CmpOp::Lt => "<",
        CmpOp::Le => "<=",
        CmpOp::Gt => ">",
        CmpOp::Ge => ">=",
        CmpOp::Is => "is",
        CmpOp::IsNot => "is not",
        CmpOp::In => "in",
        CmpOp::NotIn => "not in",
    }
}

fn build(kind: BuildKind) -> &'static str {
    match kind {
        BuildKind::Tuple => "tuple",
        BuildKind::List => "list",
        BuildKind::Set => "set",
        BuildKind::Dict => "dict",
        BuildKind::Slice => "slice",
        BuildKind::Str => "str",
    }
}
