//! Functions, lambdas, classes and imports.
//!
//! In: a definition. Out: the statement that binds it, and the nested function lowered in place. Never: resolving
//! imports. Next: `scope.rs`.

use super::{Lowerer, Value, span};
use crate::ir::{Class, ClassId, FuncId, FuncKind, Operand, Param, ParamKind, Rvalue, Stmt};
use crate::source::{Idx, Name, Span};
use crate::syntax::attach::Header;
use ruff_python_ast as ast;
use ruff_python_ast::{Alias, Expr};

type Defaults = Vec<(u32, Operand)>;

impl<'a> Lowerer<'a> {
    pub(super) fn function_def(&mut self, node: &'a ast::StmtFunctionDef) {
        let mut parts = Vec::with_capacity(node.decorator_list.len());
        let mut decorators = Vec::with_capacity(node.decorator_list.len());
        for decorator in &node.decorator_list {
            parts.push(span(&decorator.expression));
            decorators.push(self.expr(&decorator.expression));
        }
        let defaults = self.defaults(&node.parameters);
        let name = self.word(node.name.as_str());
        let class = self.body_of();
        let last = node.decorator_list.last().map(|d| span(d).end);
        let whole = Span::new(definition_start(self.text, span(node).start, last), span(node).end);
        let name_span = span(&node.name);
        let func = self.enter(FuncKind::Function, name, class, whole, name_span);
        self.cur().is_async = node.is_async;
        self.params(&node.parameters);
        self.collect_bindings(&node.body);
        self.docstring(&node.body);
        if !self.claims.is_empty() {
            let header = Header {
                start: span(node).start,
                name_end: name_span.end,
                method: class.is_some(),
                params: self.cur().params.clone(),
            };
            self.claims.attach_signature(func, &header);
        }
        self.stmts(&node.body);
        self.leave();
        if class.is_some() {
            self.add_method(Name::from(node.name.as_str()), func);
        }
        let (dst, then) = self.name_slot(node.name.as_str(), name_span);
        self.emit(
            Stmt::Def { dst, func, defaults: defaults.into(), decorators: decorators.into() },
            name_span,
            parts.into_boxed_slice(),
        );
        self.finish_target(dst, then, name_span);
    }

    /// The class whose body is being lowered. The class of a class body is the one it is the body of.
    fn body_of(&mut self) -> Option<ClassId> {
        let here = self.cur();
        if here.kind == FuncKind::ClassBody { here.class } else { None }
    }

    fn add_method(&mut self, name: Name, func: FuncId) {
        let methods = &mut self.cur().methods;
        match methods.iter_mut().find(|(n, _)| *n == name) {
            Some(entry) => entry.1 = func,
            None => methods.push((name, func)),
        }
    }

    fn params(&mut self, parameters: &'a ast::Parameters) {
        for p in &parameters.posonlyargs {
            self.param(&p.parameter, ParamKind::PositionalOnly, p.default.is_some(), span(p));
        }
        for p in &parameters.args {
            self.param(&p.parameter, ParamKind::Normal, p.default.is_some(), span(p));
        }
        if let Some(p) = parameters.vararg.as_deref() {
            self.param(p, ParamKind::VarArgs, false, span(p));
        }
        for p in &parameters.kwonlyargs {
            self.param(&p.parameter, ParamKind::KeywordOnly, p.default.is_some(), span(p));
        }
        if let Some(p) = parameters.kwarg.as_deref() {
            self.param(p, ParamKind::KwArgs, false, span(p));
        }
    }

    fn param(&mut self, parameter: &'a ast::Parameter, kind: ParamKind, has_default: bool, span: Span) {
        let name = parameter.name.as_str();
        let hint = parameter.annotation.as_deref().map(|a| self.hint(a));
        let word = self.word(name);
        self.declare(name);
        let slot = self.slot(name);
        let local = slot.expect("a parameter is a local of its function");
        self.cur().params.push(Param { local, name: word, kind, has_default, hint, span });
    }

    /// Source text of an annotation without whitespace, and without the quotes of a string.
    fn hint(&mut self, annotation: &Expr) -> Name {
        let at = span(annotation);
        let text = self.text.get(at.start as usize..at.end as usize).unwrap_or_default();
        if let Expr::StringLiteral(literal) = annotation {
            return literal.value.to_str().chars().filter(|c| !c.is_whitespace()).collect();
        }
        let plain = |c: char| !c.is_whitespace() && c != '"' && c != '\'';
        if text.chars().all(plain) {
            return self.word(text);
        }
        // The strings in `Literal["sum"]` are values, elsewhere they are types.
        let keep_quotes = text.contains("Literal[");
        text.chars().filter(|&c| !c.is_whitespace() && (keep_quotes || plain(c))).collect()
    }

    /// Defaults are evaluated in the enclosing function.
    fn defaults(&mut self, parameters: &'a ast::Parameters) -> Defaults {
        let mut defaults = Vec::new();
        let positional = parameters.posonlyargs.iter().chain(&parameters.args);
        let first_keyword =
            parameters.posonlyargs.len() + parameters.args.len() + usize::from(parameters.vararg.is_some());
        let positional = positional.enumerate();
        let keyword = parameters.kwonlyargs.iter().enumerate().map(|(i, p)| (first_keyword + i, p));
        for (index, parameter) in positional.chain(keyword) {
            if let Some(default) = parameter.default.as_deref() {
                defaults.push((index as u32, self.expr(default)));
            }
        }
        defaults
    }

    pub(super) fn lambda(&mut self, node: &'a ast::ExprLambda) -> Value {
        let defaults = match node.parameters.as_deref() {
            Some(parameters) => self.defaults(parameters),
            None => Vec::new(),
        };
        let whole = span(node);
        let name_span = Span::new(whole.start, whole.start + 6);
        let noted = self.claims.targets.len();
        let func = self.enter(FuncKind::Lambda, Name::from("<lambda>"), None, whole, name_span);
        if let Some(parameters) = node.parameters.as_deref() {
            self.params(parameters);
        }
        self.collect_walrus_expr(&node.body);
        let value = self.expr(&node.body);
        let at = span(node.body.as_ref());
        self.emit(Stmt::Return { value }, at, Box::new([at]));
        self.leave();
        self.claims.targets.truncate(noted);
        Value::Rvalue(Rvalue::Closure { func, defaults: defaults.into() }, Box::new([]))
    }

    pub(super) fn class_def(&mut self, node: &'a ast::StmtClassDef) {
        let mut parts = Vec::new();
        let mut decorators = Vec::with_capacity(node.decorator_list.len());
        for decorator in &node.decorator_list {
            decorators.push(self.expr(&decorator.expression));
        }
        let (mut bases, mut keywords) = (Vec::new(), Vec::new());
        if let Some(arguments) = node.arguments.as_deref() {
            for base in &arguments.args {
                parts.push(span(base));
                bases.push(self.expr(base));
            }
            for keyword in &arguments.keywords {
                let value = self.expr(&keyword.value);
                if let Some(name) = &keyword.arg {
                    keywords.push((Name::from(name.as_str()), value));
                }
            }
        }
        parts.extend(node.decorator_list.iter().map(|d| span(&d.expression)));
        self.claim_header(span(node).start);
        let (name, qualname) = (self.word(node.name.as_str()), self.qualname(node.name.as_str()));
        let last = node.decorator_list.last().map(|d| span(d).end);
        let whole = Span::new(definition_start(self.text, span(node).start, last), span(node).end);
        let name_span = span(&node.name);
        let class = ClassId::from_index(self.classes.len());
        self.classes.push(None);
        let body = self.enter(FuncKind::ClassBody, name.clone(), Some(class), whole, name_span);
        self.collect_bindings(&node.body);
        self.docstring(&node.body);
        self.stmts(&node.body);
        let methods = self.leave();
        self.classes[class.index()] = Some(Class { name, qualname, body, span: whole, name_span, methods });
        let (dst, then) = self.name_slot(node.name.as_str(), name_span);
        let (bases, keywords, decorators) = (bases.into(), keywords.into(), decorators.into());
        self.emit(Stmt::Class { dst, class, bases, keywords, decorators }, name_span, parts.into_boxed_slice());
        self.finish_target(dst, then, name_span);
    }

    pub(super) fn import(&mut self, alias: &'a Alias) {
        let loads = Name::from(alias.name.as_str());
        let (bound, path) = match &alias.asname {
            Some(name) => (name.as_str(), loads.clone()),
            None => {
                let first = alias.name.split('.').next().unwrap_or_default();
                (first, Name::from(first))
            }
        };
        let at = span(alias);
        let (dst, then) = self.name_slot(bound, at);
        self.emit(Stmt::Import { dst, path, member: None, level: 0, loads }, at, Box::new([]));
        self.finish_target(dst, then, at);
    }

    pub(super) fn import_from(&mut self, node: &'a ast::StmtImportFrom) {
        let path = node.module.as_ref().map_or(Name::default(), |m| Name::from(m.as_str()));
        for alias in &node.names {
            let at = span(alias);
            if alias.name.as_str() == "*" {
                self.emit(Stmt::ImportStar { path: path.clone(), level: node.level }, at, Box::new([]));
                continue;
            }
            let bound = alias.asname.as_ref().unwrap_or(&alias.name);
            let (dst, then) = self.name_slot(bound.as_str(), at);
            let member = Some(Name::from(alias.name.as_str()));
            let import = Stmt::Import { dst, path: path.clone(), member, level: node.level, loads: path.clone() };
            self.emit(import, at, Box::new([]));
            self.finish_target(dst, then, at);
        }
    }
}

/// Where `def` or `class` begins: after the decorators, blank lines and comments.
fn definition_start(text: &str, start: u32, last_decorator_end: Option<u32>) -> u32 {
    let Some(end) = last_decorator_end else { return start };
    let bytes = text.as_bytes();
    let mut at = end as usize;
    while let Some(&b) = bytes.get(at) {
        match b {
            b'#' => {
                while bytes.get(at).is_some_and(|&b| b != b'\n' && b != b'\r') {
                    at += 1;
                }
            }
            b if b.is_ascii_whitespace() || b == b'\\' => at += 1,
            _ => break,
        }
    }
    at as u32
}
