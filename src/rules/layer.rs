//! Rules of layers whose parameters are split over a group, and of the marks that code puts on such parameters.
//!
//! In: `[[layer]]` and `[[mark]]` entries. Out: [`LayerRule`] and [`MarkRule`]. Never: evaluation of conditions.
//! Source: `rules/README.md`. Next: `infer/layer.rs`.

use super::book::Entry;
use super::collective::{CollectiveRule, Form, Pattern, Transition};
use super::load::{Loader, exports};
use super::schema;
use super::signature::Signature;
use crate::ir::annotation::Cond;
use crate::source::Name;
use crate::types::AxisType;
use std::sync::Arc;
use toml::Spanned;

/// A layer with a contract.
#[derive(Clone, Debug)]
pub struct LayerRule {
    pub name: Name,
    /// The constructor.
    pub args: Signature,
    /// The constructor argument that is the group.
    pub group: Option<usize>,
    /// Axes when the group is absent or `None`.
    pub default_group: Vec<Name>,
    /// Axes under a condition; the first that holds goes before `default_group`.
    pub groups: Vec<(Cond, Vec<Name>)>,
    /// A call of an instance under a condition (`None`: otherwise), as a collective over the axes of the group.
    pub cases: Vec<(Option<Cond>, Arc<CollectiveRule>)>,
    /// The result is a tuple with the bias that was not added.
    pub gives_bias: bool,
    /// Parameters of the layer, and what they are on the axes of the group.
    pub params: Vec<(Name, Pattern)>,
    /// Attributes with which somebody turns the collectives off after the construction.
    pub switches: Vec<Name>,
    /// It is made of other modules: where its source is in the project, calls run it, and the rule is what it is compared with.
    pub open: bool,
    /// What a condition names, and the attributes that a source without it keeps instead.
    pub kept_as: Vec<(Name, Vec<Name>)>,
    pub source: Name,
}

/// An attribute of a parameter that says that it is split.
#[derive(Clone, Debug)]
pub struct MarkRule {
    pub name: Name,
    pub axes: Vec<Name>,
    /// What a parameter with the mark is on the axes.
    pub set: AxisType,
    /// The attribute that names the dim.
    pub dim: Option<Name>,
    /// A variable of the code that sets the mark: if it is true, the axes are the others.
    pub unless: Option<(Name, Vec<Name>)>,
    pub source: Name,
}

/// What holds for parameters without a mark in code on a framework.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolRule {
    /// Packages; a file that imports from one follows the protocol. None: all files of a project that are written for no framework.
    pub packages: Vec<Name>,
    /// The axes over which an unmarked parameter is whole and its gradient not summed.
    pub axes: Vec<Name>,
    /// Parts of names of parameters whose gradients the framework sums without a mark.
    pub summed_names: Vec<Name>,
    pub source: Name,
}

impl ProtocolRule {
    /// Whether a module, or a name in it, is one of the framework itself.
    pub fn has(&self, path: &str) -> bool {
        let inside = |rest: &str| rest.is_empty() || rest.starts_with('.');
        self.packages.iter().any(|package| path.strip_prefix(package.as_str()).is_some_and(inside))
    }
}

/// A way to split a module over the ranks, by the word that plans have for it.
#[derive(Clone, Debug)]
pub struct PlanStyleRule {
    pub name: Name,
    /// Whether it takes parts; `None`: it takes anything.
    pub takes_part: Option<bool>,
    /// Whether it gives parts; `None`: what it takes.
    pub gives_part: Option<bool>,
    pub source: Name,
}

fn names(axes: &[String]) -> Vec<Name> {
    axes.iter().map(|a| Name::from(a.as_str())).collect()
}

impl Loader {
    fn cond(&mut self, text: &Spanned<String>) -> Option<Cond> {
        match crate::syntax::parse_cond(text.get_ref()) {
            Ok(cond) => Some(cond),
            Err(message) => {
                self.problem(text, message);
                None
            }
        }
    }

    pub(super) fn add_layer(&mut self, l: &schema::Layer, source: &str) {
        let (args, forward) = (self.signature(&l.args), self.signature(&l.forward));
        let Some(input) = self.param(&forward, &l.input) else { return };
        let mut transitions: Vec<(Option<Cond>, Transition)> = Vec::new();
        for case in &l.cases {
            if let (Some(c), Some(t)) = (self.cond(&case.condition), self.transition(&case.transition)) {
                transitions.push((Some(c), t));
            }
        }
        if let Some(t) = l.transition.as_ref().and_then(|t| self.transition(t)) {
            transitions.push((None, t));
        }
        let groups: Vec<(Cond, Vec<Name>)> =
            l.groups.iter().filter_map(|g| Some((self.cond(&g.condition)?, names(&g.axes)))).collect();
        let group = l.group.as_ref().and_then(|g| self.param(&args, g));
        let mut params = Vec::new();
        for (name, text) in &l.params {
            match Pattern::parse(text.get_ref()) {
                Ok(pattern) => params.push((Name::from(name.as_str()), pattern)),
                Err(message) => self.problem(text, message),
            }
        }
        let gives_bias = match l.result.as_ref().map(|r| (r, r.get_ref().as_str())) {
            None | Some((_, "output")) => false,
            Some((_, "output, bias")) => true,
            Some((at, other)) => {
                let message = format!("`{other}` is not one of `output`, `output, bias`");
                return self.problem(at, message);
            }
        };
        let source = Name::from(l.source.as_deref().unwrap_or(source));
        for path in exports(&l.names, &l.modules) {
            let cases = transitions
                .iter()
                .map(|(c, t)| (c.clone(), Arc::new(as_collective(&path, &forward, input, t, &source))))
                .collect();
            let rule = LayerRule {
                name: path.clone(),
                args: args.clone(),
                group,
                default_group: names(&l.default_group),
                groups: groups.clone(),
                cases,
                gives_bias,
                params: params.clone(),
                switches: names(&l.switches),
                open: l.open,
                kept_as: l.kept_as.iter().map(|(path, other)| (Name::from(path.as_str()), names(other))).collect(),
                source: source.clone(),
            };
            self.insert(path, Entry::Layer(Arc::new(rule)));
        }
    }

    pub(super) fn add_protocol(&mut self, p: &schema::Protocol, source: &str) {
        self.book.insert_protocol(ProtocolRule {
            packages: names(&p.packages),
            axes: names(&p.axes),
            summed_names: names(&p.summed_names),
            source: Name::from(p.source.as_deref().unwrap_or(source)),
        });
    }

    pub(super) fn add_plan_style(&mut self, style: &schema::PlanStyle, source: &str) {
        let is_part = |held: Option<schema::Held>| held.map(|held| held == schema::Held::Part);
        for name in &style.names {
            self.book.insert_plan_style(PlanStyleRule {
                name: Name::from(name.as_str()),
                takes_part: is_part(style.takes),
                gives_part: is_part(style.gives),
                source: Name::from(style.source.as_deref().unwrap_or(source)),
            });
        }
    }

    pub(super) fn add_mark(&mut self, m: &schema::Mark, source: &str) {
        let set = match m.set.as_ref().map(|text| (text, Pattern::parse(text.get_ref()))) {
            None => AxisType::V,
            Some((_, Ok(pattern))) => pattern.set,
            Some((text, Err(message))) => return self.problem(text, message),
        };
        for name in &m.names {
            let path = Name::from(format!(".{}", name.get_ref()));
            let rule = MarkRule {
                name: path.clone(),
                axes: names(&m.axes),
                set,
                dim: m.dim.as_deref().map(Name::from),
                unless: m.unless.as_deref().map(|u| (Name::from(u), names(&m.else_axes))),
                source: Name::from(m.source.as_deref().unwrap_or(source)),
            };
            self.insert(path, Entry::Mark(Arc::new(rule)));
        }
    }
}

/// A call of a layer in one configuration.
fn as_collective(
    path: &Name,
    forward: &Signature,
    input: usize,
    transition: &Transition,
    source: &Name,
) -> CollectiveRule {
    CollectiveRule {
        name: path.clone(),
        args: forward.clone(),
        op: Name::from("layer"),
        form: Form::Result,
        input,
        output: None,
        group: None,
        default_group: Vec::new(),
        transitions: vec![(None, transition.clone())],
        legal: Vec::new(),
        expert: Vec::new(),
        moves_shard: false,
        reduce_op: None,
        differentiable: true,
        repair: None,
        source: source.clone(),
    }
}
