//! The compiled rules, by qualified name. In: entries from `load.rs`. Out: lookups. Never: iteration in hash order near output.
//! Next: `infer/call.rs`, which asks.

use super::collective::CollectiveRule;
use super::layer::{LayerRule, MarkRule, PlanStyleRule, ProtocolRule};
use super::operator::Kind;
use super::shapes::ShapeRule;
use super::shards::{Reduction, Whole};
use super::signature::Signature;
use crate::source::Name;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// What a tensor operation does apart from linearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass {
    /// Types flow by linearity.
    Plain(Kind),
    /// Any type is allowed; the result is no tensor.
    Metadata,
    /// Equal values on all ranks.
    Equal,
    /// Values may differ between ranks.
    UnknownValues,
    /// The receiver takes the other's values.
    CopyInto,
    /// The receiver is filled with values that do not depend on it.
    Fill,
    /// A look at a rank's own values: any type, nothing receives a gradient; what was P is V.
    Probe,
    /// Nothing is known.
    Opaque,
}

/// What an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultForm {
    Tensor,
    List,
    Tuple(u8),
    ValuesIndices,
    /// Values and indices if a `dim` is given, else one tensor.
    ValuesIndicesIfDim,
    Number,
    Bool,
    /// The sizes of the tensor.
    Shape,
    None,
}

/// A torch operation.
#[derive(Clone, Debug)]
pub struct OpRule {
    pub name: Name,
    pub args: Signature,
    pub class: OpClass,
    pub tensors: Vec<usize>,
    pub index: Vec<usize>,
    pub divisor: Vec<usize>,
    pub shape: ShapeRule,
    pub result: ResultForm,
    pub nondiff: bool,
    pub fresh_grad: bool,
    pub identity: bool,
    /// Mutates its receiver.
    pub in_place: bool,
    /// The result is zero everywhere.
    pub zero: bool,
    pub dims: Option<Name>,
    /// Dims over which it couples elements.
    pub whole: Vec<Whole>,
    /// Dims whose elements it divides by their sum.
    pub normalises: Vec<Whole>,
    /// What its reduction of a split dim leaves to be done over the ranks.
    pub pending: Option<Reduction>,
    /// What the run-time checker takes it for, inside `typecheck()`.
    pub typecheck: Typecheck,
    pub source: Name,
}

/// How the run-time checker classes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typecheck {
    /// Not in its table: non-linear in every tensor argument.
    Default,
    Kind(Kind),
    /// A deterministic factory: R on the current mesh.
    Factory,
    /// Not intercepted.
    Passthrough,
}

/// A `torch.nn` module.
#[derive(Clone, Debug)]
pub struct ModuleRule {
    pub name: Name,
    pub args: Signature,
    pub call: Option<Name>,
    /// Parameters of a call of the module.
    pub forward: Signature,
    /// Parameters that exist only if these constructor arguments are true.
    pub params_when: Vec<(Name, Vec<Name>)>,
    /// Parameter name → sizes by constructor argument; `*argument`: all of them.
    pub params: Vec<(Name, Vec<Name>)>,
    pub source: Name,
}

/// A function with a meaning of its own.
#[derive(Clone, Debug)]
pub struct IntrinsicRule {
    pub name: Name,
    pub does: Name,
    pub args: Signature,
    pub group: Option<usize>,
    pub default_group: Vec<Name>,
    /// Parts that arguments and attributes play, where `does` needs more than positions.
    pub roles: Vec<(Name, Name)>,
    pub source: Name,
}

impl IntrinsicRule {
    /// The name of the argument or attribute that plays a part.
    pub fn role(&self, part: &str) -> Option<&Name> {
        self.roles.iter().find(|(p, _)| p == part).map(|(_, name)| name)
    }
}

/// What a group expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    Group,
    Rank,
    Size,
}

/// A getter, global or attribute that denotes a process group, its rank or its size.
#[derive(Clone, Debug)]
pub struct GroupRule {
    pub name: Name,
    pub axes: Vec<Name>,
    pub with: Vec<(Name, Vec<Name>)>,
    pub gives: Gives,
    pub source: Name,
}

/// A rule of any sort.
#[derive(Clone, Debug)]
pub enum Entry {
    Op(Arc<OpRule>),
    Module(Arc<ModuleRule>),
    Collective(Arc<CollectiveRule>),
    Intrinsic(Arc<IntrinsicRule>),
    Group(Arc<GroupRule>),
    Layer(Arc<LayerRule>),
    /// Under the attribute's name with a dot before it.
    Mark(Arc<MarkRule>),
}

/// What an intrinsic does that tells whether this is the first rank.
pub const FIRST_RANK: &str = "first-rank";

/// What the intrinsics do that communicate.
const COMMUNICATING: &[&str] = &["rooted-collective", "object-collective", "barrier"];

impl Entry {
    /// Whether it communicates with other ranks.
    pub fn communicates(&self) -> bool {
        match self {
            Entry::Collective(_) => true,
            Entry::Intrinsic(rule) => COMMUNICATING.contains(&&*rule.does),
            Entry::Layer(_) | Entry::Op(_) | Entry::Module(_) | Entry::Group(_) | Entry::Mark(_) => false,
        }
    }
}

/// All rules of a run.
#[derive(Clone, Debug, Default)]
pub struct RuleBook {
    by_name: FxHashMap<Name, Entry>,
    /// Rules whose package is open (`*.mappings.f`): last component → (suffix, entry), the longest suffix first.
    by_suffix: FxHashMap<Name, Vec<(Name, Entry)>>,
    /// Prefixes that stand for another: (from, to).
    aliases: Vec<(Name, Name)>,
    /// What makes objects that train: package and last name.
    trainers: Vec<(Name, Name)>,
    /// The whole names of what makes or stands for them.
    training: Vec<Name>,
    /// The names that objects that train go by where nothing says what they are.
    called: Vec<(Name, Arc<IntrinsicRule>)>,
    /// Methods of subclasses whose result is the loss, with the rule of the base.
    losses: Vec<Name>,
    protocols: Vec<ProtocolRule>,
    plan_styles: Vec<PlanStyleRule>,
    pub(super) wrappers: super::wrapper::Wrappers,
    /// All of them, each once, in order of definition.
    order: Vec<(Name, Entry)>,
    /// The last components of all names.
    last: FxHashSet<Name>,
    /// Those of everything that communicates, and of functions that mark what they are given.
    communicating: FxHashSet<Name>,
    marking: FxHashSet<Name>,
    /// Last components of operations through which no gradient comes back.
    looking: FxHashSet<Name>,
    /// Names of attributes that have a rule, and those that are marks.
    attributes: FxHashSet<Name>,
    marks: Vec<Name>,
    /// Marks whose dim another attribute names, with their own names.
    dims: Vec<(Name, Arc<MarkRule>)>,
}

impl RuleBook {
    pub(super) fn insert(&mut self, name: Name, entry: Entry) {
        let last = Name::from(name.rsplit('.').next().unwrap_or(&name));
        if entry.communicates() {
            self.communicating.insert(last.clone());
        }
        if matches!(&entry, Entry::Intrinsic(rule) if rule.does == "mark-partitioned") {
            self.marking.insert(last.clone());
        }
        if matches!(&entry, Entry::Intrinsic(rule) if matches!(rule.does.as_str(), "trainer" | "trainer-initialize")) {
            let package = Name::from(name.split('.').next().unwrap_or(&name));
            self.trainers.push((package, last.clone()));
        }
        if matches!(&entry, Entry::Intrinsic(rule) if matches!(rule.does.as_str(), "trainer" | "trainer-initialize" | "state-object"))
        {
            self.training.push(name.clone());
        }
        if let Entry::Intrinsic(rule) = &entry
            && let Some(word) = rule.role("called")
            && !self.called.iter().any(|(known, _)| known == word)
        {
            self.called.push((word.clone(), rule.clone()));
        }
        if let Entry::Intrinsic(rule) = &entry
            && let Some(method) = rule.role("loss").filter(|m| rule.does == "trainer-base" && !self.losses.contains(m))
        {
            self.losses.push(method.clone());
        }
        if matches!(&entry, Entry::Op(rule) if rule.nondiff || rule.class == OpClass::Metadata) {
            self.looking.insert(last.clone());
        }
        self.last.insert(last);
        if let Some(attribute) = name.strip_prefix('.') {
            self.attributes.insert(Name::from(attribute));
            if matches!(entry, Entry::Mark(_)) {
                self.marks.push(Name::from(attribute));
            }
        }
        self.dims.retain(|(known, _)| *known != name);
        if let Entry::Mark(rule) = &entry
            && rule.dim.is_some()
        {
            self.dims.push((name.clone(), rule.clone()));
        }
        let is_new = match name.strip_prefix("*.") {
            Some(suffix) => {
                let last = Name::from(suffix.rsplit('.').next().unwrap_or(suffix));
                let known = self.by_suffix.entry(last).or_default();
                match known.iter_mut().find(|(other, _)| other == suffix) {
                    Some((_, before)) => {
                        *before = entry.clone();
                        false
                    }
                    None => {
                        let longer = known.partition_point(|(other, _)| other.len() >= suffix.len());
                        known.insert(longer, (Name::from(suffix), entry.clone()));
                        true
                    }
                }
            }
            None => self.by_name.insert(name.clone(), entry.clone()).is_none(),
        };
        if is_new {
            self.order.push((name, entry));
        } else if let Some((_, before)) = self.order.iter_mut().find(|(known, _)| *known == name) {
            *before = entry;
        }
    }
    pub(super) fn insert_alias(&mut self, from: Name, to: Name) {
        self.aliases.push((from, to));
    }

    pub(super) fn insert_protocol(&mut self, protocol: ProtocolRule) {
        self.protocols.push(protocol);
    }
    pub(super) fn insert_plan_style(&mut self, style: PlanStyleRule) {
        self.plan_styles.push(style);
    }

    /// The way to split a module that plans have a word for.
    pub fn plan_style(&self, word: &str) -> Option<&PlanStyleRule> {
        self.plan_styles.iter().find(|s| s.name == word)
    }

    /// What makes objects that train: packages and last names.
    pub fn trainers(&self) -> &[(Name, Name)] {
        &self.trainers
    }

    /// Whether something that makes objects that train is a member of a path, or of one of its members.
    pub fn holds_trainer(&self, path: &str) -> bool {
        let dotted = |rest: &str| rest.starts_with('.');
        self.training.iter().any(|name| {
            let aliased = |(from, to): &(Name, Name)| {
                let Some(rest) = name.strip_prefix(to.as_str()).filter(|rest| dotted(rest)) else { return false };
                match path.strip_prefix(from.as_str()) {
                    Some(further) => rest.strip_prefix(further).is_some_and(dotted),
                    None => from.strip_prefix(path).is_some_and(dotted),
                }
            };
            name.strip_prefix(path).is_some_and(dotted) || name.starts_with("*.") || self.aliases.iter().any(aliased)
        })
    }

    /// What an object that trains is, by the name that it goes by where nothing says what it is.
    pub fn called(&self, word: &str) -> Option<&Arc<IntrinsicRule>> {
        self.called.iter().find(|(known, _)| known == word).map(|(_, rule)| rule)
    }

    /// The names that objects that train go by.
    pub fn callings(&self) -> impl Iterator<Item = &Name> {
        self.called.iter().map(|(word, _)| word)
    }

    /// Methods whose result a base outside the project takes for the loss.
    pub fn loss_methods(&self) -> &[Name] {
        &self.losses
    }

    /// What holds for parameters without a mark, by framework.
    pub fn protocols(&self) -> &[ProtocolRule] {
        &self.protocols
    }

    /// The rule of a qualified name: exact, then through an alias of its package, then by open package, the longest one.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        let last = path.rsplit('.').next()?;
        if !self.may_name(last) {
            return None;
        }
        if let Some(entry) = self.by_name.get(path) {
            return Some(entry);
        }
        for (from, to) in &self.aliases {
            if let Some(rest) = path.strip_prefix(from.as_str())
                && rest.starts_with('.')
                && let Some(entry) = self.by_name.get(format!("{to}{rest}").as_str())
            {
                return Some(entry);
            }
        }
        let fits = |suffix: &str| path.strip_suffix(suffix).is_some_and(|head| head.is_empty() || head.ends_with('.'));
        self.by_suffix.get(last)?.iter().find(|(suffix, _)| fits(suffix)).map(|(_, entry)| entry)
    }

    /// Whether a path that ends like this may have a rule.
    pub fn may_name(&self, last: &str) -> bool {
        self.last.contains(last)
    }

    /// Whether a path that ends like this may communicate.
    pub fn may_communicate(&self, last: &str) -> bool {
        self.communicating.contains(last)
    }

    /// Whether a path that ends like this may mark what it is given.
    pub fn may_mark(&self, last: &str) -> bool {
        self.marking.contains(last)
    }

    /// Whether no gradient comes back through an operation whose name ends like this.
    pub fn only_looks(&self, last: &str) -> bool {
        self.looking.contains(last)
    }

    /// The names of all marks.
    pub fn marks(&self) -> &[Name] {
        &self.marks
    }

    /// The last components of the names of everything that communicates, in no particular order.
    pub fn communicating(&self) -> impl Iterator<Item = &Name> {
        self.communicating.iter()
    }

    /// The layer with a contract of a path.
    pub fn layer(&self, path: &str) -> Option<&Arc<LayerRule>> {
        match self.get(path) {
            Some(Entry::Layer(rule)) => Some(rule),
            _ => None,
        }
    }
    pub fn op(&self, path: &str) -> Option<&Arc<OpRule>> {
        match self.by_name.get(path) {
            Some(Entry::Op(rule)) => Some(rule),
            _ => None,
        }
    }

    /// A method or property of tensors.
    pub fn tensor_method(&self, name: &str) -> Option<&Arc<OpRule>> {
        self.may_name(name).then(|| self.op(&format!("torch.Tensor.{name}"))).flatten()
    }

    /// Whether a class outside the project is the base of autograd functions.
    pub fn autograd_base(&self, path: &str) -> bool {
        matches!(self.get(path), Some(Entry::Intrinsic(rule)) if rule.does == "autograd-function")
    }

    /// The mark that an attribute of a parameter is.
    pub fn mark(&self, name: &str) -> Option<&Arc<MarkRule>> {
        if !self.attributes.contains(name) {
            return None;
        }
        match self.by_name.get(format!(".{name}").as_str()) {
            Some(Entry::Mark(rule)) => Some(rule),
            _ => None,
        }
    }

    /// What an attribute, or a method without arguments, of any object says of the first rank: `.is_main_process`.
    pub fn first_rank(&self, name: &str) -> Option<&IntrinsicRule> {
        if !self.attributes.contains(name) {
            return None;
        }
        match self.by_name.get(format!(".{name}").as_str()) {
            Some(Entry::Intrinsic(rule)) if rule.does == FIRST_RANK => Some(rule),
            _ => None,
        }
    }

    /// The mark whose dim an attribute of a parameter names.
    pub fn mark_of_dim(&self, name: &str) -> Option<&Arc<MarkRule>> {
        self.dims.iter().map(|(_, rule)| rule).find(|rule| rule.dim.as_deref() == Some(name))
    }

    /// The attribute of any object that denotes a group: `.tp_group`.
    pub fn group_attribute(&self, name: &str) -> Option<&Arc<GroupRule>> {
        if !self.attributes.contains(name) {
            return None;
        }
        match self.by_name.get(format!(".{name}").as_str()) {
            Some(Entry::Group(rule)) => Some(rule),
            _ => None,
        }
    }

    /// Every rule with its name, in order of definition.
    pub fn entries(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.order.iter().map(|(name, entry)| (name, entry))
    }

    /// Collectives whose repair text belongs to this vocabulary (the module that the file imports).
    pub fn collectives(&self) -> impl Iterator<Item = &Arc<CollectiveRule>> {
        self.entries().filter_map(|(_, e)| match e {
            Entry::Collective(rule) => Some(rule),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules that give `f` to an open package, one axis for each.
    fn book(rules: &[(&str, &str)]) -> RuleBook {
        let text = |(package, axis): &(&str, &str)| {
            format!("[[group]]\nnames = ['f']\nmodules = ['*.{package}']\naxes = ['{axis}']\nsource = 'test'\n")
        };
        let texts: Vec<String> = rules.iter().map(text).collect();
        let files: Vec<(&str, &str)> = texts.iter().map(|text| ("rules.toml", text.as_str())).collect();
        let (book, problems) = super::super::load::load(&files);
        assert!(problems.is_empty(), "{problems:?}");
        book
    }

    fn axis(book: &RuleBook, path: &str) -> Option<Name> {
        match book.get(path)? {
            Entry::Group(rule) => rule.axes.first().cloned(),
            other => panic!("no group: {other:?}"),
        }
    }

    #[test]
    fn a_later_rule_of_an_open_package_replaces_an_earlier_one() {
        let book = book(&[("mpu", "tp"), ("mpu", "cp")]);
        assert_eq!(axis(&book, "a.mpu.f").as_deref(), Some("cp"));
        assert_eq!(book.entries().count(), 1);
    }

    #[test]
    fn the_longest_open_package_is_the_one() {
        let book = book(&[("mpu", "tp"), ("own.mpu", "cp")]);
        assert_eq!(axis(&book, "a.mpu.f").as_deref(), Some("tp"));
        assert_eq!(axis(&book, "own.mpu.f").as_deref(), Some("cp"));
        assert_eq!(axis(&book, "a.own.mpu.f").as_deref(), Some("cp"));
        assert_eq!(axis(&book, "downmpu.f"), None);
    }
}
