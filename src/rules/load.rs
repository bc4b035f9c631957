//! From rule files to a [`RuleBook`]: expansion of names, compilation of notations, checks.
//!
//! In: (file name, text) pairs. Out: the book, and every mistake with its place in its file. Never: I/O. Next: `builtin.rs`.

use super::book::{
    Entry, Gives, GroupRule, IntrinsicRule, ModuleRule, OpClass, OpRule, ResultForm, RuleBook, Typecheck,
};
use super::collective::{CollectiveRule, Form, Transition};
use super::operator::Kind;
use super::schema;
use super::shapes::ShapeRule;
use super::shards::{Reduction, Whole};
use super::signature::Signature;
use crate::source::{Name, Span};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use toml::Spanned;

/// A mistake in a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// Which of the given files.
    pub file: usize,
    pub span: Span,
    pub message: String,
}

/// Compiles rule files, later ones overriding earlier ones by name.
pub fn load(files: &[(&str, &str)]) -> (RuleBook, Vec<RuleProblem>) {
    load_but(files, |_| false)
}

/// The same, without the collectives of some files.
pub(super) fn load_but(files: &[(&str, &str)], without: impl Fn(&str) -> bool) -> (RuleBook, Vec<RuleProblem>) {
    let mut loader = Loader { book: RuleBook::default(), problems: Vec::new(), file: 0, table: FxHashMap::default() };
    let read: Vec<Result<schema::RuleFile, toml::de::Error>> =
        files.par_iter().with_max_len(1).map(|(_, text)| toml::from_str(text)).collect();
    let mut parsed: Vec<Option<schema::RuleFile>> = Vec::with_capacity(read.len());
    for (i, read) in read.into_iter().enumerate() {
        parsed.push(match read {
            Ok(file) => Some(file),
            Err(error) => {
                let span = error.span().map_or(Span::default(), |s| Span::new(s.start as u32, s.end as u32));
                loader.problems.push(RuleProblem { file: i, span, message: error.message().to_string() });
                None
            }
        });
    }
    for file in parsed.iter().flatten() {
        loader.typecheck_table(file);
    }
    for (i, file) in parsed.iter().enumerate() {
        loader.file = i;
        if let Some(file) = file {
            loader.add(file, files[i].0, without(files[i].0));
        }
    }
    (loader.book, loader.problems)
}

pub(super) struct Loader {
    pub(super) book: RuleBook,
    problems: Vec<RuleProblem>,
    file: usize,
    /// The run-time checker's classes by name.
    table: FxHashMap<Name, Typecheck>,
}

fn span_of<T>(s: &Spanned<T>) -> Span {
    Span::new(s.span().start as u32, s.span().end as u32)
}

impl Loader {
    pub(super) fn problem<T>(&mut self, at: &Spanned<T>, message: String) {
        self.problems.push(RuleProblem { file: self.file, span: span_of(at), message });
    }

    fn typecheck_table(&mut self, file: &schema::RuleFile) {
        let Some(t) = &file.typecheck else { return };
        let classes = [
            (&t.linear, Typecheck::Kind(Kind::Linear)),
            (&t.multilinear, Typecheck::Kind(Kind::Multilinear)),
            (&t.division, Typecheck::Kind(Kind::Division)),
            (&t.affine, Typecheck::Kind(Kind::Affine)),
            (&t.factories, Typecheck::Factory),
            (&t.passthrough, Typecheck::Passthrough),
        ];
        for (names, class) in classes {
            for name in names {
                self.table.insert(Name::from(name.as_str()), class);
            }
        }
    }

    fn add(&mut self, file: &schema::RuleFile, file_name: &str, without_collectives: bool) {
        let source = file.source.clone().unwrap_or_else(|| file_name.to_string());
        for protocol in &file.protocol {
            self.add_protocol(protocol, &source);
        }
        for style in &file.plan_style {
            self.add_plan_style(style, &source);
        }
        for wrapper in &file.wrapper {
            self.add_wrapper(wrapper, &source);
        }
        for norm in &file.gradient_norm {
            self.add_norms(norm);
        }
        for scaler in &file.loss_scaler {
            self.add_scaler(scaler);
        }
        for alias in &file.alias {
            self.book.insert_alias(Name::from(alias.from.as_str()), Name::from(alias.to.as_str()));
        }
        for op in &file.op {
            self.add_op(op, &source);
        }
        for module in &file.module {
            self.add_module(module, &source);
        }
        for collective in file.collective.iter().filter(|_| !without_collectives) {
            self.add_collective(collective, &source);
        }
        for intrinsic in &file.intrinsic {
            self.add_intrinsic(intrinsic, &source);
        }
        for group in &file.group {
            self.add_group(group, &source);
        }
        for layer in &file.layer {
            self.add_layer(layer, &source);
        }
        for mark in &file.mark {
            self.add_mark(mark, &source);
        }
    }

    pub(super) fn insert(&mut self, name: Name, entry: Entry) {
        self.book.insert(name, entry);
    }

    pub(super) fn signature(&mut self, text: &Spanned<String>) -> Signature {
        match Signature::parse(text.get_ref()) {
            Ok(s) => s,
            Err(message) => {
                self.problem(text, message);
                Signature::default()
            }
        }
    }

    pub(super) fn param(&mut self, args: &Signature, name: &Spanned<String>) -> Option<usize> {
        let at = args.index(name.get_ref());
        if at.is_none() {
            self.problem(name, format!("`{}` is not a parameter of this signature", name.get_ref()));
        }
        at
    }

    fn params(&mut self, args: &Signature, names: &[Spanned<String>]) -> Vec<usize> {
        names.iter().filter_map(|n| self.param(args, n)).collect()
    }

    fn add_op(&mut self, op: &schema::Op, source: &str) {
        let args = self.signature(&op.args);
        let Some(class) = op_class(op.kind.get_ref()) else {
            let message = format!("`{}` is not a kind of operation", op.kind.get_ref());
            return self.problem(&op.kind, message);
        };
        let shape = match op.shape.as_ref().map(|s| (s, ShapeRule::parse(s.get_ref()))) {
            None => ShapeRule::None,
            Some((_, Some(rule))) => rule,
            Some((at, None)) => {
                let message = format!("`{}` is not a shape rule", at.get_ref());
                return self.problem(at, message);
            }
        };
        let result = match op.result.as_ref().map(|r| (r, result_form(r.get_ref()))) {
            None => ResultForm::Tensor,
            Some((_, Some(form))) => form,
            Some((at, None)) => {
                let message = format!("`{}` is not a form of result", at.get_ref());
                return self.problem(at, message);
            }
        };
        let mut divisor = self.params(&args, &op.divisor);
        let tensors = self.params(&args, &op.tensors);
        if class == OpClass::Plain(Kind::Division) && divisor.is_empty() {
            divisor.extend(tensors.iter().skip(1));
        }
        let mutates = op.mutates.as_ref().and_then(|m| self.param(&args, m));
        let rule = OpRule {
            name: Name::default(),
            class,
            index: self.params(&args, &op.index),
            tensors,
            divisor,
            args,
            shape,
            result,
            nondiff: op.nondiff,
            fresh_grad: op.fresh_grad,
            identity: op.identity,
            in_place: mutates.is_some(),
            zero: op.zero,
            dims: op.dims.as_deref().map(Name::from),
            whole: self.whole(op.whole.as_ref()),
            normalises: self.whole(op.normalises.as_ref()),
            pending: self.pending(op.pending.as_ref()),
            typecheck: Typecheck::Default,
            source: Name::from(op.source.as_deref().unwrap_or(source)),
        };
        for (path, in_place) in self.spellings(op) {
            let typecheck = self.table.get(&path).copied().unwrap_or(Typecheck::Default);
            let in_place = in_place || rule.in_place || matches!(class, OpClass::CopyInto | OpClass::Fill);
            let rule = OpRule { name: path.clone(), in_place, typecheck, ..rule.clone() };
            self.book.insert(path, Entry::Op(Arc::new(rule)));
        }
    }

    /// The dims of an entry over which it couples elements.
    fn whole(&mut self, written: Option<&Spanned<toml::Value>>) -> Vec<Whole> {
        let Some(at) = written else { return Vec::new() };
        match at.get_ref() {
            toml::Value::String(name) => vec![Whole::LastOf(Name::from(name.as_str()))],
            toml::Value::Array(entries) => entries
                .iter()
                .filter_map(|entry| match entry {
                    toml::Value::Integer(dim) => Some(Whole::At(*dim)),
                    toml::Value::String(all) if all == "all" => Some(Whole::All),
                    toml::Value::String(name) => Some(Whole::Argument(Name::from(name.as_str()))),
                    other => {
                        self.problem(at, format!("`{other}` is neither a dim nor the name of an argument"));
                        None
                    }
                })
                .collect(),
            other => {
                self.problem(at, format!("this is a list of dims, not `{other}`"));
                Vec::new()
            }
        }
    }

    fn pending(&mut self, written: Option<&Spanned<String>>) -> Option<Reduction> {
        let at = written?;
        let found = Reduction::parse(at.get_ref());
        if found.is_none() {
            self.problem(at, format!("`{}` is not a reduction over ranks", at.get_ref()));
        }
        found
    }

    /// Qualified names of an entry, with whether the spelling mutates its receiver.
    fn spellings(&mut self, op: &schema::Op) -> Vec<(Name, bool)> {
        let mut out = Vec::new();
        for name in &op.names {
            let n = name.get_ref();
            if n.contains('.') {
                out.push((Name::from(n.as_str()), is_in_place(n)));
                continue;
            }
            for spell in &op.spell {
                let (path, in_place) = match spell.get_ref().as_str() {
                    "torch" => (format!("torch.{n}"), false),
                    "Tensor" => (format!("torch.Tensor.{n}"), is_in_place(n)),
                    "property" => (format!("torch.Tensor.{n}"), false),
                    "inplace" => (format!("torch.Tensor.{n}_"), true),
                    "torch_inplace" => (format!("torch.{n}_"), true),
                    "F" => (format!("torch.nn.functional.{n}"), false),
                    "special" => (format!("torch.special.{n}"), false),
                    "linalg" => (format!("torch.linalg.{n}"), false),
                    "fft" => (format!("torch.fft.{n}"), false),
                    "dunder" => (format!("torch.Tensor.__{n}__"), n.starts_with('i') && IN_PLACE.contains(&n.as_str())),
                    other => {
                        self.problem(spell, format!("`{other}` is not a spelling"));
                        continue;
                    }
                };
                out.push((Name::from(path), in_place));
            }
            if op.spell.is_empty() {
                self.problem(name, format!("`{n}` has no dot and the entry no `spell`"));
            }
        }
        out
    }

    fn add_module(&mut self, module: &schema::Module, source: &str) {
        let args = module.args.as_ref().map_or_else(Signature::default, |a| self.signature(a));
        let params: Vec<(Name, Vec<Name>)> = module
            .params
            .iter()
            .map(|(name, sizes)| {
                // One word stands for all sizes: a number, or a sequence of them.
                let all = || sizes.as_str().map(|s| Name::from(format!("*{s}"))).into_iter().collect();
                let sizes = sizes.as_array().map_or_else(all, |a| {
                    a.iter().map(|s| s.as_str().map_or_else(|| Name::from(s.to_string()), Name::from)).collect()
                });
                (Name::from(name.as_str()), sizes)
            })
            .collect();
        let forward = match &module.forward {
            Some(text) => self.signature(text),
            None => Signature::parse("(input)").expect("a constant signature parses"),
        };
        let params_when: Vec<(Name, Vec<Name>)> = module
            .params_when
            .iter()
            .map(|(name, conditions)| {
                let list = conditions
                    .as_array()
                    .map_or_else(Vec::new, |a| a.iter().filter_map(|c| c.as_str()).map(Name::from).collect());
                (Name::from(name.as_str()), list)
            })
            .collect();
        for name in &module.names {
            let rule = ModuleRule {
                name: Name::from(name.get_ref().as_str()),
                args: args.clone(),
                forward: forward.clone(),
                params_when: params_when.clone(),
                call: module.call.as_ref().map(|c| Name::from(c.get_ref().as_str())),
                params: params.clone(),
                source: Name::from(module.source.as_deref().unwrap_or(source)),
            };
            self.book.insert(rule.name.clone(), Entry::Module(Arc::new(rule)));
        }
    }

    pub(super) fn transition(&mut self, text: &Spanned<String>) -> Option<Transition> {
        match Transition::parse(text.get_ref()) {
            Ok(t) => Some(t),
            Err(message) => {
                self.problem(text, message);
                None
            }
        }
    }

    fn add_collective(&mut self, c: &schema::Collective, source: &str) {
        let args = self.signature(&c.args);
        let Some(input) = self.param(&args, &c.input) else { return };
        let form = match c.form.as_ref().map(|f| (f, form(f.get_ref()))) {
            None => Form::Result,
            Some((_, Some(form))) => form,
            Some((at, None)) => {
                let message = format!("`{}` is not a form of collective", at.get_ref());
                return self.problem(at, message);
            }
        };
        let mut transitions = Vec::new();
        for when in &c.when {
            if let (Some(arg), Some(t)) = (self.param(&args, &when.arg), self.transition(&when.transition)) {
                transitions.push((Some((arg, Name::from(when.is.as_str()))), t));
            }
        }
        if let Some(t) = c.transition.as_ref().and_then(|t| self.transition(t)) {
            transitions.push((None, t));
        }
        let rule = CollectiveRule {
            name: Name::default(),
            op: Name::from(c.op.as_str()),
            form,
            input,
            output: c.output.as_ref().and_then(|o| self.param(&args, o)),
            group: c.group.as_ref().and_then(|g| self.param(&args, g)),
            default_group: c.default_group.iter().map(|a| Name::from(a.as_str())).collect(),
            transitions,
            legal: c.legal.iter().filter_map(|t| self.transition(t)).collect(),
            expert: c.expert.iter().filter_map(|t| self.transition(t)).collect(),
            moves_shard: c.moves_shard,
            reduce_op: c.reduce_op.as_ref().and_then(|r| self.param(&args, r)),
            differentiable: c.differentiable.unwrap_or(true),
            repair: c.repair.as_deref().map(Name::from),
            args,
            source: Name::from(c.source.as_deref().unwrap_or(source)),
        };
        for path in exports(&c.names, &c.modules) {
            let rule = CollectiveRule { name: path.clone(), ..rule.clone() };
            self.book.insert(path, Entry::Collective(Arc::new(rule)));
        }
    }

    fn add_intrinsic(&mut self, i: &schema::Intrinsic, source: &str) {
        let args = i.args.as_ref().map_or_else(Signature::default, |a| self.signature(a));
        let group = i.group.as_ref().and_then(|g| args.index(g));
        for path in exports(&i.names, &i.modules) {
            let rule = IntrinsicRule {
                name: path.clone(),
                does: Name::from(i.does.get_ref().as_str()),
                args: args.clone(),
                group,
                default_group: i.default_group.iter().map(|a| Name::from(a.as_str())).collect(),
                roles: i.roles.iter().map(|(p, n)| (Name::from(p.as_str()), Name::from(n.as_str()))).collect(),
                source: Name::from(i.source.as_deref().unwrap_or(source)),
            };
            self.book.insert(path, Entry::Intrinsic(Arc::new(rule)));
        }
    }

    fn add_group(&mut self, g: &schema::Group, source: &str) {
        let names = |axes: &[String]| axes.iter().map(|a| Name::from(a.as_str())).collect::<Vec<_>>();
        let gives = match g.gives.as_ref().map(|s| s.get_ref().as_str()) {
            None | Some("group") => Gives::Group,
            Some("rank") => Gives::Rank,
            Some("size") => Gives::Size,
            Some(other) => {
                let message = format!("`{other}` is not one of group, rank, size");
                if let Some(at) = &g.gives {
                    self.problem(at, message);
                }
                return;
            }
        };
        for path in exports(&g.names, &g.modules) {
            let rule = GroupRule {
                name: path.clone(),
                axes: names(&g.axes),
                with: g.with.iter().map(|(k, v)| (Name::from(k.as_str()), names(v))).collect(),
                gives,
                source: Name::from(g.source.as_deref().unwrap_or(source)),
            };
            self.book.insert(path, Entry::Group(Arc::new(rule)));
        }
    }
}

/// In-place operators among the dunder names.
const IN_PLACE: &[&str] = &[
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ior",
    "ixor",
    "ilshift",
    "irshift",
    "imatmul",
];

fn is_in_place(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.ends_with('_') && !last.ends_with("__") && last != "_"
}

/// Every module with every name; names with a dot, and names without modules, as they are.
pub(super) fn exports(names: &[Spanned<String>], modules: &[String]) -> Vec<Name> {
    let mut out = Vec::new();
    for name in names {
        let n = name.get_ref();
        if modules.is_empty() || n.contains('.') {
            out.push(Name::from(n.as_str()));
        } else {
            out.extend(modules.iter().map(|m| Name::from(format!("{m}.{n}"))));
        }
    }
    out
}

fn op_class(text: &str) -> Option<OpClass> {
    Some(match text {
        "nonlinear" => OpClass::Plain(Kind::Nonlinear),
        "linear" => OpClass::Plain(Kind::Linear),
        "multilinear" => OpClass::Plain(Kind::Multilinear),
        "division" => OpClass::Plain(Kind::Division),
        "affine" => OpClass::Plain(Kind::Affine),
        "linear-layer" => OpClass::Plain(Kind::LinearLayer),
        "select" => OpClass::Plain(Kind::Select),
        "metadata" => OpClass::Metadata,
        "equal" => OpClass::Equal,
        "unknown-values" => OpClass::UnknownValues,
        "copy-into" => OpClass::CopyInto,
        "fill" => OpClass::Fill,
        "probe" => OpClass::Probe,
        "opaque" => OpClass::Opaque,
        _ => return None,
    })
}

fn result_form(text: &str) -> Option<ResultForm> {
    Some(match text {
        "tensor" => ResultForm::Tensor,
        "list" => ResultForm::List,
        "values-indices" => ResultForm::ValuesIndices,
        "values-indices-if-dim" => ResultForm::ValuesIndicesIfDim,
        "number" => ResultForm::Number,
        "bool" => ResultForm::Bool,
        "shape" => ResultForm::Shape,
        "none" => ResultForm::None,
        _ => ResultForm::Tuple(text.strip_prefix("tuple:")?.parse().ok()?),
    })
}

fn form(text: &str) -> Option<Form> {
    Some(match text {
        "result" => Form::Result,
        "in-place" => Form::InPlace,
        "into-output" => Form::IntoOutput,
        "into-list" => Form::IntoList,
        "src-dst" => Form::SrcDst,
        _ => return None,
    })
}
