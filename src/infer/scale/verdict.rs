//! Whether gradients that reach the optimizer carry the factor that they should. In: the classes of parameters on a path. Out: a
//! [`Mistake`]. Never: a verdict on a factor that is not known, or that some layout of the ranks makes right. Source: issue of scales:
//! the same factor for every parameter, and that of a mean where the loss is one. Next: `mod.rs`.

use super::eval::TOKENS;
use super::eval::may_count_ranks;
use super::groups::{Kind, WORLD, kind};
use super::together::are_sure;
use super::value::{Class, Event, State, Tensor, Term, What};
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, Factor, Monomial, Scale};

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another factor than the mean over all tokens.
    Mean,
    /// Another factor than other parameters have.
    Than(Name),
    /// Tokens are counted over axes over which gradients are not summed.
    NotSummed(AxisSet),
    /// Each rank takes the mean of its own tokens, where the mean over all is declared.
    MeanOfMeans,
    /// Each rank divides by the tokens of all its rounds, and by no other rank's.
    OwnTokens,
    /// A value that is shown.
    Metric,
    /// A factor that each stage of a pipeline applies once more.
    EachStage,
    /// Copies of one gradient are added up.
    Copies,
    /// A loss is divided by what takes its backward pass divides by.
    Divided,
}

/// A factor that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub wrong: Wrong,
    /// Where it is shown.
    pub place: Place,
    /// The parameters, by name of the module and by what code asks of them.
    pub who: Name,
    pub factor: Monomial,
    pub summed: AxisSet,
    /// What the factor is made of, in order.
    pub events: Vec<Event>,
    /// A number of the configuration is part of it: wrong only beside a path that is right without.
    pub beside: bool,
}

impl Mistake {
    /// Whether another path makes the same one, of a model that goes by another name there.
    pub fn is_like(&self, other: &Mistake) -> bool {
        let shown = self.place == other.place && self.wrong == other.wrong && self.beside == other.beside;
        shown && self.factor == other.factor && self.summed == other.summed
    }
}

/// What the code or the configuration says of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// It is a mean over all tokens, not one of means.
    pub over_tokens: bool,
    /// It is a mean, of whatever.
    pub mean: bool,
}

/// Whether gradients of parameters have a factor that is wrong.
///
/// `judged`: the steps whose factors are known to be right or wrong.
/// `right`: whether any is known to be right.
pub fn judge(
    state: &State,
    step: Place,
    declared: Declared,
    judged: &mut Vec<Place>,
    right: &mut bool,
) -> Option<Mistake> {
    let mut classes: Vec<&Class> = state.trained().filter(|c| !c.total().1.is_empty()).collect();
    classes.sort_by_key(|c| reaches_experts(c));
    let dense: AxisSet = classes.iter().filter(|c| !c.is_expert()).flat_map(|c| data(&c.total().1)).collect();
    let dense = if dense.iter().any(|a| kind(a) == Kind::Data && !is_of_experts(a)) {
        dense.iter().filter(|a| !is_of_experts(a)).cloned().collect()
    } else {
        dense
    };
    for class in &classes {
        for term in state.terms.iter() {
            if is_of_parts(class, &classes, term) {
                continue;
            }
            match absolute(state, class, term, &dense, step, declared) {
                Judgement::Unknown => {}
                Judgement::Right => {
                    *right = true;
                    judged.extend(class.events.iter().map(|e| e.place));
                }
                Judgement::Wrong(m) => {
                    judged.extend(class.events.iter().map(|e| e.place));
                    return Some(*m);
                }
            }
        }
    }
    relative(state, &classes, &dense, declared)
}

/// Whether a loss is counted over a model axis over which parameters of the same module with a mark are summed: of these each rank has the gradient that
/// its part of the loss gives, and the others may be parts of which the layers themselves give whole gradients.
fn is_of_parts(class: &Class, classes: &[&Class], term: &Term) -> bool {
    let counted = |a: &Axis| {
        let scale = term.part.grad.known();
        scale.is_some_and(|m| m.powers().any(|(factor, power)| power < 0 && axis(factor).as_ref() == Some(a)))
    };
    let marked = classes.iter().filter(|c| c.module == class.module && c.facts.values().any(|holds| *holds));
    marked.into_iter().any(|c| c.total().1.iter().any(|a| kind(a) == Kind::Model && counted(a)))
}

fn data(axes: &AxisSet) -> Vec<Axis> {
    axes.iter().filter(|a| kind(a) != Kind::Model).cloned().collect()
}

/// Whether an axis is one of experts alone.
pub fn is_of_experts(axis: &Axis) -> bool {
    matches!(axis.name(), "edp" | "etp") || axis.name().contains("expert") || axis.name().starts_with("edp")
}

enum Judgement {
    Unknown,
    Right,
    Wrong(Box<Mistake>),
}

/// Compared with the mean over all tokens.
fn absolute(state: &State, class: &Class, term: &Term, dense: &AxisSet, step: Place, declared: Declared) -> Judgement {
    let made = Mistake::of(class, state, term, &class.total().1, step);
    if let Some(factor) = beside_value(class, term) {
        return Judgement::Wrong(Box::new(Mistake { factor, ..made }));
    }
    if let Some(place) = own_tokens(state, class, term) {
        return Judgement::Wrong(Box::new(Mistake { wrong: Wrong::OwnTokens, place, ..made }));
    }
    let Some(known) = Carried::of(state, class, term, dense) else { return Judgement::Unknown };
    match known.layouts.settled(&known.wrong, false) {
        Some(factor) if may_be_all(&factor) => Judgement::Unknown,
        Some(factor) => {
            let place = sized(&factor, &made, term).unwrap_or(made.place);
            Judgement::Wrong(Box::new(Mistake { factor, place, beside: known.beside, ..made }))
        }
        None if known.is_opaque || known.beside => Judgement::Unknown,
        None if known.of_experts => Judgement::Right,
        None => match of_sets(state, term, &known.own, declared, made) {
            Some(mistake) => Judgement::Wrong(Box::new(mistake)),
            None => Judgement::Right,
        },
    }
}

/// The last step that has numbers of ranks, where these alone are wrong and the last step of all has none.
fn sized(factor: &Monomial, made: &Mistake, term: &Term) -> Option<Place> {
    let of_ranks = |m: &Monomial| m.powers().any(|(f, _)| matches!(f, Factor::Size(_)));
    let has_ranks = |e: &Event| match &e.what {
        What::Times(s) | What::Over(s) => s.known().map(of_ranks),
        _ => None,
    };
    let events = &term.part.events;
    let named = has_ranks(events.iter().rfind(|e| e.place == made.place)?) == Some(false);
    let all_of_ranks = factor.powers().all(|(f, _)| matches!(f, Factor::Size(_)));
    (named && all_of_ranks).then(|| events.iter().rfind(|e| has_ranks(e) == Some(true)).map(|e| e.place))?
}

/// The factor between the gradient of a loss and the loss itself, which was averaged over the same ranks before its backward pass.
fn beside_value(class: &Class, term: &Term) -> Option<Monomial> {
    let (after, over) = class.total();
    let over: AxisSet = data(&over).into_iter().collect();
    let size = Scale::size(&over);
    let summed = |e: &Event| matches!(&e.what, What::Summed(axes) if *axes == over);
    let averaged = term.part.value.known()?.powers().any(|(f, n)| n < 0 && matches!(f, Factor::Size(_)));
    if over.is_empty() || !averaged || !term.part.events.iter().any(summed) || term.part.grad != term.part.value {
        return None;
    }
    // What arrives is divided by them once more.
    let factor = after.known()?.clone();
    (Scale::Known(factor.clone()) == size.inverse()).then_some(factor)
}

/// Where a loss is divided by the tokens of all rounds of this rank, which no other rank's are added to.
fn own_tokens(state: &State, class: &Class, term: &Term) -> Option<Place> {
    // Where a flag decides, the other way may count the tokens of all ranks; what one rank logs now and then counts none.
    let decides = |name: &Name| !super::conditional::asks_rank(name) && !name.starts_with(super::value::EVERY);
    let logs = || state.facts.keys().any(|name| super::conditional::asks_rank(name));
    if !state.counted.is_empty()
        || state.facts.keys().any(|name| decides(name) || !logs())
        || data(&class.total().1).is_empty()
        || class.total().0.known().is_none()
    {
        return None;
    }
    let grad = term.part.grad.known()?;
    let tokens = Factor::Count(Name::from(TOKENS));
    let of_rounds = |f: &Factor| {
        matches!(f, Factor::Rounds(_) | Factor::Named(_))
            && term.loops.iter().any(|(_, r)| r.known().is_some_and(|r| r.power(f) == 1))
    };
    let sized = grad.powers().any(|(f, _)| matches!(f, Factor::Size(_)));
    // The tokens of one round and the number of rounds, each divided by where it is known, make the mean of the means of the rounds.
    let by_rounds = |e: &Event| match &e.what {
        What::Over(s) | What::Own(s) => {
            s.known().is_some_and(|m| m.power(&tokens) == 0 && m.powers().any(|(f, n)| n == 1 && of_rounds(f)))
        }
        _ => false,
    };
    if term.part.events.iter().any(by_rounds) {
        return None;
    }
    let divided = |e: &&Event| matches!(&e.what, What::Over(s) if s.known().is_some_and(|m| m.power(&tokens) == 1));
    let over = term.part.events.iter().rfind(divided)?;
    let of_all_rounds = grad.powers().any(|(f, n)| n == -1 && of_rounds(f));
    (of_all_rounds && !sized && grad.power(&tokens) == -1).then_some(over.place)
}

/// Whether a module is made by a library, which shows of none of its losses whether they are its own, beside other modules.
fn is_one_of_several(state: &State, class: &Class) -> bool {
    let made = |m: usize| state.modules.get(m).is_some_and(|m| m.name.ends_with(')'));
    class.module.is_some_and(made) && state.modules.len() > 1
}

/// What a gradient carries beyond the mean over all tokens.
struct Carried {
    wrong: Monomial,
    layouts: Layouts,
    /// The axes with data over which it is summed.
    own: AxisSet,
    of_experts: bool,
    /// Nothing is known of the loss but its name.
    is_opaque: bool,
    /// A number of the configuration is left out.
    beside: bool,
}

impl Carried {
    fn of(state: &State, class: &Class, term: &Term, dense: &AxisSet) -> Option<Carried> {
        if state.unsettled || is_one_of_several(state, class) {
            return None;
        }
        let (after, over) = class.total();
        // A wrapper over all ranks may be older than the mesh that names them.
        let own: AxisSet = data(&over_parts(state, &over)).into_iter().collect();
        let dense = &over_parts(state, dense);
        let of_experts = class.is_expert() || own.iter().any(is_of_experts);
        if of_experts && (dense.is_empty() || dense.iter().all(is_of_experts)) {
            return None;
        }
        let all = if of_experts || dense.is_empty() { dense.clone() } else { own.clone() };
        // Summed over ranks with the same tokens alone, and divided by the number of those with others.
        let explicit = class
            .after
            .known()
            .is_some_and(|m| m.powers().any(|(f, _)| axis(f).is_some_and(|a| kind(&a) == Kind::Data)));
        let wrapped = !class.always.1.is_empty();
        if all.is_empty() && (class.is_partial() || !(wrapped || explicit && class.over.len() == 1)) {
            return None;
        }
        let (all_rounds, optional) = rounds(state, term);
        let carried = state.in_rounds(term, &after.times(&term.part.grad));
        let carried = as_rounds(&in_parts(state, &carried), &all_rounds);
        let carried = as_accumulated(carried, &all_rounds);
        let rounds = as_rounds(&all_rounds, &all_rounds);
        let optional =
            optional.iter().filter_map(|m| as_rounds(&Scale::Known(m.clone()), &all_rounds).known().cloned());
        let tokens = Scale::of(Factor::Count(Name::from(TOKENS)));
        let ratio = carried.times(&tokens).times(&Scale::size(&all)).times(&rounds);
        let (m, carried) = (ratio.known()?.clone(), carried.known()?.clone());
        let configured = of_configuration(&m);
        let m = m.only_but(configured.as_ref());
        let named: Vec<(&Factor, i8)> = m.powers().filter(|(f, _)| matches!(f, Factor::Named(_))).collect();
        let assumed = class.module.and_then(|m| state.modules.get(m)).is_some_and(|m| m.assumed);
        if assumed && named.iter().any(|(f, _)| **f != Factor::Named(term.part.label.clone())) {
            return None;
        }
        let is_opaque = is_opaque(&named, term, &after)?;
        let counted = m.power(&Factor::Count(Name::from(TOKENS)));
        // A sum over tokens that is divided by nothing is meant as one, or what it is meant as is not known.
        if !is_opaque && counted >= 1 {
            return None;
        }
        let sizes = m.only(|f| matches!(f, Factor::Size(_) | Factor::Rounds(_)));
        let wrong = if !is_opaque && counted != 0 { m.only(|f| !matches!(f, Factor::Named(_))) } else { sizes };
        let mut layouts = Layouts::of(state, &[class], &carried, &all, dense);
        layouts.may_count(&[&after, &term.part.grad, &all_rounds]);
        layouts.free.extend(optional.flat_map(|m| m.powers().map(|(f, _)| f.clone()).collect::<Vec<_>>()));
        if is_opaque {
            // The loss may be divided by all of this already, or be a sum.
            layouts.divided = vec![Scale::size(&all), rounds];
            // Of a sequence that several ranks share each may have its part of the whole mean.
            let parts: AxisSet = all.iter().filter(|a| matches!(a.name(), "cp" | "sp")).cloned().collect();
            if !parts.is_empty() && parts != all {
                layouts.divided.push(Scale::size(&parts));
            }
            if carried.only(|f| matches!(f, Factor::Size(_))).is_number() {
                return None;
            }
        }
        if configured.is_some() && is_opaque {
            return None;
        }
        Some(Carried { wrong, layouts, own, of_experts, is_opaque, beside: configured.is_some() })
    }
}

/// Whether nothing is known of a loss but its name; `None` where a number that is known by name alone may be right.
fn is_opaque(named: &[(&Factor, i8)], term: &Term, after: &Scale) -> Option<bool> {
    let (factor, name) = match named {
        [] => return Some(false),
        [(factor @ Factor::Named(name), 1)] => (*factor, name),
        _ => return None,
    };
    let power = |scale: &Scale| scale.known().map_or(0, |m| m.power(factor));
    if *name == term.part.label && power(&term.part.grad) == 1 {
        return Some(true);
    }
    // What gradients are multiplied with after they are reduced may be one over the number of ranks; a size of one part, or an entry of the
    // round, may well add up to one over all rounds.
    let of_step = Scale::of(factor.clone()) != super::norms::factor() && power(after) != 0;
    (is_coefficient(name) && !of_step).then_some(false)
}

/// The rounds whose gradients add up before a step, and those that may well be meant as a sum.
fn rounds(state: &State, term: &Term) -> (Scale, Vec<Monomial>) {
    let mut all = Scale::one();
    let mut optional = Vec::new();
    for (key, scale) in &term.loops {
        if !state.loops.iter().any(|(k, _)| k == key) {
            all = all.times(scale);
            if let Some(m) = scale.known()
                && !m.powers().any(|(f, _)| accumulates(&f.to_string()))
            {
                optional.push(m.clone());
            }
        }
    }
    let since = state.rounds_since(&term.every, &term.loops);
    let of_loss = |m: &&Monomial| m.powers().any(|(f, _)| adds_losses(&f.to_string()));
    optional.extend(since.known().filter(of_loss).cloned());
    (all.times(&since), optional)
}

/// Words of rounds each of which has a loss of its own, which are summed: steps of one sequence, one task after another.
const SUMMED: &[&str] = &["horizon", "bptt", "unroll", "trunc", "task"];

/// Whether rounds are parts of one loss that is a sum, by name.
fn adds_losses(name: &str) -> bool {
    let lower = name.to_lowercase();
    SUMMED.iter().any(|w| lower.contains(w))
}

/// Whether rounds of a loop are those of gradient accumulation, by name.
pub fn accumulates(name: &str) -> bool {
    let lower = name.to_lowercase();
    let short = || {
        let parts: Vec<&str> = lower.rsplit('.').next().unwrap_or(&lower).split('_').collect();
        parts.len() > 1
            && parts.contains(&"acc")
            && parts.iter().any(|p| p.starts_with("grad") || p.starts_with("step"))
    };
    ["accum", "micro", "gas", "mbs"].iter().any(|w| lower.contains(w)) || short()
}

/// Whether a number is that of all ranks over the sizes of several axes, or one over it: where these are all axes there are, it is one.
fn may_be_all(wrong: &Monomial) -> bool {
    let power = wrong.power(&Factor::Size(Axis::new(WORLD)));
    let others: Vec<i8> =
        wrong.powers().filter(|(f, _)| axis(f).is_some_and(|a| a.name() != WORLD)).map(|(_, p)| p).collect();
    power != 0 && others.len() > 1 && others.iter().all(|p| *p == -power) && wrong.powers().count() == others.len() + 1
}

/// The number of all ranks as the product of the dims of the mesh, where one was made.
fn in_parts(state: &State, scale: &Scale) -> Scale {
    match &*state.world {
        Some(axes) => scale.replace(&Factor::Size(Axis::new(WORLD)), &Scale::size(axes)),
        None => scale.clone(),
    }
}

/// The same of axes that are summed over.
fn over_parts(state: &State, over: &AxisSet) -> AxisSet {
    let world = Axis::new(WORLD);
    match &*state.world {
        Some(axes) if over.iter().any(|a| *a == world) => {
            over.iter().filter(|a| **a != world).chain(axes.iter()).cloned().collect()
        }
        Some(_) | None => over.clone(),
    }
}

/// Numbers that are known by name alone, seen as the rounds of which these are.
fn as_rounds(scale: &Scale, rounds: &Scale) -> Scale {
    let names = rounds.known().into_iter().flat_map(Monomial::powers).map(|(f, _)| f.clone());
    names.fold(scale.clone(), |s, f| match &f {
        Factor::Named(name) => s.replace(&f, &Scale::of(Factor::Rounds(name.clone()))),
        _ => s,
    })
}

/// Whether a number that is known by name alone may weigh a loss, the same in every round.
fn is_coefficient(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let may_divide =
        last.split('_').any(|part| INVERSE.contains(&part)) || name.contains("**") || may_count_ranks(name);
    // What a caller hands over may be anything, unless its name says what it is for.
    let is_told = name.contains('.') || last.split('_').any(|part| WEIGHTS.iter().any(|w| part.starts_with(w)));
    !name.contains(['[', '(']) && !accumulates(name) && !may_divide && is_told
}

/// How parts of names of numbers begin that weigh losses.
const WEIGHTS: &[&str] = &[
    "coef", "weight", "alpha", "beta", "gamma", "delta", "lam", "tau", "temp", "kl", "ratio", "eps", "mu", "w",
    "strength", "margin", "aux", "penalty", "reg",
];

/// Parts of names of numbers that may be one over the number of ranks.
const INVERSE: &[&str] = &["inv", "inverse", "scale", "norm", "recip", "reciprocal"];

/// Words of numbers that are counts or sizes, whatever the configuration says.
const COUNTS: &[&str] =
    &["size", "num", "count", "world", "dp", "rank", "batch", "len", "token", "total", "accum", "steps", "degree"];

/// The one number of the configuration in a factor, if nothing else in it is known by name alone.
fn of_configuration(m: &Monomial) -> Option<Factor> {
    let mut named = m.powers().filter(|(f, _)| matches!(f, Factor::Named(_)));
    let (Some((factor @ Factor::Named(name), 1 | -1)), None) = (named.next(), named.next()) else { return None };
    let plain = name.contains('.') && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let counts = COUNTS.iter().any(|w| name.to_lowercase().contains(w));
    let configured = ["config", "args", "cfg", "hparams", "opt"].iter().any(|w| name.contains(w));
    (plain && configured && !counts).then(|| factor.clone())
}

/// A divisor that is called the rounds of accumulation, seen as those of the one loop whose rounds nothing divides by.
fn as_accumulated(carried: Scale, rounds: &Scale) -> Scale {
    let (Some(known), Some(rounds)) = (carried.known().cloned(), rounds.known()) else { return carried };
    let divides = |f: &Factor, n: i8| match f {
        Factor::Named(name) => n == -1 && accumulates(name),
        _ => false,
    };
    let mut divisors = known.powers().filter(|(f, n)| divides(f, *n)).map(|(f, _)| f.clone());
    let (Some(divisor), None) = (divisors.next(), divisors.next()) else { return carried };
    let mut open = rounds.powers().map(|(f, n)| (f.clone(), n));
    match (open.next(), open.next()) {
        (Some((Factor::Named(name), 1)), None) if known.power(&Factor::Rounds(name.clone())) == 0 => {
            carried.replace(&divisor, &Scale::of(Factor::Rounds(name)))
        }
        _ => carried,
    }
}

/// What may be one in a layout of the ranks, so that code may rely on it.
#[derive(Default)]
struct Layouts {
    /// Axes and rounds that may be of no account.
    free: Vec<Factor>,
    /// Ways in which experts' axes and the others are the same ranks; one holds.
    experts: Vec<Scale>,
    /// What all ranks may be; one holds.
    world: Vec<Scale>,
    /// What a loss may have been divided by where it is made; all may hold.
    divided: Vec<Scale>,
    /// How many ranks axes have, where a mesh is made with numbers.
    dims: Vec<(Factor, Scale)>,
    /// Numbers of the code that may be sizes of groups.
    numbers: Vec<Scale>,
}

impl Layouts {
    fn of(state: &State, classes: &[&Class], carried: &Monomial, all: &AxisSet, dense: &AxisSet) -> Layouts {
        let size = |names: &[&str]| Scale::size(&names.iter().map(|n| Axis::new(*n)).collect());
        let known = state.dims.iter().filter(|(_, n)| **n != Scale::Unknown);
        let dims = known.map(|(axis, n)| (Factor::Size(axis.clone()), n.clone())).collect();
        let mut out = Layouts { dims, numbers: vec![Scale::one()], ..Layouts::default() };
        let (experts, parts) = (size(&["edp", "ep"]), size(&["edp", "ep", "etp"]));
        for whole in [size(&["dp", "cp"]), size(&["dp"]), Scale::size(dense), Scale::size(all)] {
            out.experts.push(whole.over(&experts));
            out.experts.push(whole.times(&size(&["tp"])).over(&experts));
            out.experts.push(whole.times(&size(&["tp"])).over(&parts));
        }
        let others = state.trained().flat_map(|c| c.total().1.iter().cloned().collect::<Vec<_>>());
        let seen = others.chain(all.iter().cloned()).chain(carried.powers().filter_map(|(f, _)| axis(f)));
        let seen: AxisSet = seen.collect();
        let rest: AxisSet = seen.iter().filter(|a| a.name() != WORLD && !is_of_experts(a)).cloned().collect();
        let apart = rest.iter().any(|a| kind(a) != Kind::Data && !a.is_variable());
        if !apart && !state.of_model && state.world.is_none() && !rest.is_empty() {
            out.world.push(size(&[WORLD]).over(&Scale::size(&rest)));
            out.world.extend(rest.iter().map(|a| size(&[WORLD]).over(&Scale::size(&AxisSet::one(a.clone())))));
        }
        let replicas = size(&["dp_replicate", "dp_shard"]);
        out.world.push(size(&["dp"]).over(&size(&["fsdp"])));
        out.world.push(size(&["dp"]).over(&replicas));
        out.world.push(size(&["dp", "cp"]).over(&replicas));
        out.world.push(size(&["dp"]).over(&size(&["dp", "cp"])).times(&size(&["dp_cp"])));
        let explicit = |a: &Axis| carried.power(&Factor::Size(a.clone())) != 0;
        for class in classes {
            for axis in class.total().1.iter() {
                let free = match kind(axis) {
                    Kind::Model => !class.is_partial(),
                    Kind::Either => !explicit(axis) && !class.is_expert(),
                    Kind::Data => false,
                };
                if free {
                    out.free.push(Factor::Size(axis.clone()));
                }
            }
        }
        out
    }

    /// Numbers that are part of what a gradient carries, any of them together, may be sizes.
    fn may_count(&mut self, scales: &[&Scale]) {
        for number in scales.iter().filter_map(|s| s.known()).map(|m| Scale::Known(m.number())) {
            let with: Vec<Scale> = self.numbers.iter().map(|n| n.times(&number)).collect();
            self.numbers.extend(with.into_iter().filter(|n| *n != Scale::Unknown));
        }
    }

    /// Whether a product of sizes is one: nothing is left of it, or the dims of the mesh make it the inverse of a number that is written.
    fn is_one(&self, sizes: &Monomial) -> bool {
        let in_numbers = || self.dims.iter().fold(Scale::Known(sizes.clone()), |s, (axis, n)| s.replace(axis, n));
        sizes.is_number() || !self.dims.is_empty() && self.numbers.contains(&in_numbers().inverse())
    }

    /// A factor, if no layout makes it one, in its shortest form; nothing either if a group in it may be another one.
    fn settled(&self, whole: &Monomial, apart: bool) -> Option<Monomial> {
        let factor = whole.only(|f| !self.free.contains(f));
        if self.is_one(&factor) || !apart && maybe_one(whole) {
            return None;
        }
        let start = Scale::Known(factor.clone());
        let mut best = factor.clone();
        let one = [Scale::one()];
        let powers = |of: &[Scale], n: &[i32]| -> Vec<Scale> {
            of.iter().flat_map(|s| n.iter().map(move |k| s.power(*k))).chain(one.clone()).collect()
        };
        let mut divided = vec![Scale::one()];
        for d in &self.divided {
            divided = divided.iter().flat_map(|x| [x.clone(), x.over(d)]).collect();
        }
        for d in &divided {
            for w in powers(&self.world, &[-2, -1, 1, 2]) {
                for e in powers(&self.experts, &[-2, -1, 1, 2]) {
                    let Scale::Known(m) = start.times(d).times(&w).times(&e) else { continue };
                    if self.is_one(&m.only(|f| !self.free.contains(f))) {
                        return None;
                    }
                    if *d == one[0] && w == one[0] && m.degree() < best.degree() {
                        best = m;
                    }
                }
            }
        }
        (apart || !maybe_one(&best)).then_some(best)
    }
}

/// Whether sizes may cancel: one is that of a group of which nothing but a name is known, which may be another one here.
fn maybe_one(factor: &Monomial) -> bool {
    let signs = |yes: bool| factor.powers().any(|(f, n)| matches!(f, Factor::Size(_)) && (n > 0) == yes);
    let variable = factor.powers().any(|(f, _)| axis(f).is_some_and(|a| a.is_variable()));
    variable && signs(true) && signs(false)
}

fn axis(factor: &Factor) -> Option<Axis> {
    match factor {
        Factor::Size(a) => Some(a.clone()),
        _ => None,
    }
}

/// Whether parameters are those of experts, or summed over their ranks: they come after what they are compared with.
fn reaches_experts(class: &Class) -> bool {
    class.is_expert() || class.total().1.iter().any(is_of_experts)
}

/// Two classes of parameters that carry different factors, if there are two such classes for sure.
fn relative(state: &State, classes: &[&Class], dense: &AxisSet, declared: Declared) -> Option<Mistake> {
    for (i, class) in classes.iter().enumerate() {
        for other in classes.iter().take(i) {
            let Some(mistake) = differing(state, class, other, dense, declared) else { continue };
            let about = |c: &&Class| c.module == class.module || c.module == other.module;
            let mut all: Vec<&Class> = state.trained().filter(about).collect();
            all.sort_by_key(|c| reaches_experts(c));
            // A class that nothing reduces is compared with none.
            let is_reduced = |c: &Class| !c.total().1.is_empty();
            let at_odds = |later: usize, earlier: usize| {
                let both = is_reduced(all[later]) && is_reduced(all[earlier]);
                both && differing(state, all[later], all[earlier], dense, declared).is_some()
            };
            if are_sure(&all, &at_odds) {
                return Some(mistake);
            }
        }
    }
    None
}

/// Two classes of parameters compared with each other.
fn differing(state: &State, class: &Class, other: &Class, dense: &AxisSet, declared: Declared) -> Option<Mistake> {
    // Modules of their own may have losses of their own.
    if class.module != other.module && !reaches_experts(class) && !reaches_experts(other) && !declared.mean {
        return None;
    }
    let ((a, over), (b, all)) = (class.total(), other.total());
    let (a, b) = (in_parts(state, &a), in_parts(state, &b));
    let ratio = a.over(&b).known().cloned()?;
    if ratio.powers().any(|(f, _)| matches!(f, Factor::Named(_))) {
        return None;
    }
    let (carried, theirs) = (a.known()?, b.known()?);
    let whole: AxisSet = data(&all).into_iter().collect();
    let explicit = carried.only(|_| true);
    let explicit = Scale::Known(explicit).times(&Scale::Known(theirs.only(|_| true)));
    let mut layouts = Layouts::of(state, &[class, other], explicit.known()?, &whole, dense);
    layouts.may_count(&[&a, &b.inverse()]);
    let sizes = ratio.only(|f| !matches!(f, Factor::Named(_)));
    let factor = layouts.settled(&sizes, declared.mean)?;
    // The one whose factor is not that of its own sum is the one that is wrong.
    let (who, than, factor, over) = match class.is_expert() || !other.is_expert() {
        true => (class, other, factor, over),
        false => (other, class, Scale::Known(factor).inverse().known()?.clone(), all),
    };
    let (place, call) = shown(&who.events, &who.always.2)?;
    // A helper that serves both is right; the call is not.
    let shared = than.events.iter().any(|e| e.place == place);
    let mut events: Vec<Event> = who.always.2.iter().chain(&who.events).cloned().collect();
    events.extend(than.events.iter().chain(&than.always.2).cloned());
    Some(Mistake {
        wrong: Wrong::Than(name(than, state)),
        place: call.filter(|_| shared).unwrap_or(place),
        who: name(who, state),
        factor,
        summed: over,
        events,
        beside: false,
    })
}

/// Axes that are not summed over, and a mean of means where one over all tokens is declared.
fn of_sets(state: &State, term: &Term, own: &AxisSet, declared: Declared, made: Mistake) -> Option<Mistake> {
    let known = |a: &Axis| matches!(a.name(), "dp" | "cp") || state.world.as_ref().is_some_and(|w| w.contains(a));
    let counts = term.part.grad.known().is_some_and(|g| g.power(&Factor::Count(Name::from(TOKENS))) < 0);
    if own.iter().all(known) && counts {
        for (axes, place) in state.counted.iter() {
            // A loss that is multiplied with the size of an axis, which the count has in it, makes up for a mean that a wrapper takes which is not in sight.
            let made_up = |a: &Axis| term.part.grad.known().is_some_and(|g| g.power(&Factor::Size(a.clone())) >= 0);
            let missing: AxisSet =
                axes.iter().filter(|a| kind(a) == Kind::Data && known(a) && !own.contains(a)).cloned().collect();
            let wrapped = made.events.iter().any(|e| matches!(e.what, What::Wrapped(_)));
            if !missing.is_empty() && (wrapped || !missing.iter().any(made_up)) {
                let mut made = made;
                let reduces = |w: &What| matches!(w, What::Summed(_) | What::Averaged(_) | What::Wrapped(_));
                let last = made.events.iter().rev().find(|e| reduces(&e.what)).map(|e| e.place);
                made.place = last.unwrap_or(made.place);
                made.events.insert(0, Event { what: What::Summed(axes.clone()), place: *place, call: None });
                return Some(Mistake { wrong: Wrong::NotSummed(missing), ..made });
            }
        }
    }
    let local = |e: &&Event| match &e.what {
        What::Mean => true,
        // A count that was summed and divided by the ranks is the mean of all.
        What::Over(s) => {
            state.counted.is_empty()
                && s.known().is_some_and(|m| {
                    m.power(&Factor::Count(Name::from(TOKENS))) == 1
                        && !m.powers().any(|(f, _)| matches!(f, Factor::Size(_)))
                })
        }
        _ => false,
    };
    let own_mean = term.part.events.iter().find(local)?;
    // Where the tokens of all ranks are counted, the mean of this rank may be weighed by its share of them.
    let weighed = !state.counted.is_empty();
    (declared.over_tokens && !weighed).then(|| Mistake { wrong: Wrong::MeanOfMeans, place: own_mean.place, ..made })
}

/// The last step that gives a factor, else the last reduction, with the call that leads there.
fn shown(events: &[Event], always: &[Event]) -> Option<(Place, Option<Place>)> {
    let factor = |e: &&Event| matches!(e.what, What::Times(_) | What::Over(_) | What::Averaged(_));
    let all = || always.iter().chain(events);
    all().rfind(factor).or_else(|| all().next_back()).map(|e| (e.place, e.call))
}

impl Mistake {
    /// One about these parameters, without a factor yet.
    fn of(class: &Class, state: &State, term: &Term, summed: &AxisSet, step: Place) -> Mistake {
        let mut events: Vec<Event> = term.part.events.clone();
        events.push(Event { what: What::Backward, place: term.place, call: None });
        events.extend(class.always.2.iter().chain(&class.events).cloned());
        let scaled = |e: &&Event| matches!(e.what, What::Times(_) | What::Over(_) | What::Averaged(_));
        let after = class.events.iter().rfind(scaled);
        let before = term.part.events.iter().rfind(scaled);
        let reduced = class.events.last().or(class.always.2.last());
        let place = after.or(before).or(reduced).map_or(step, |e| e.place);
        let (who, summed) = (name(class, state), summed.clone());
        Mistake { wrong: Wrong::Mean, place, who, factor: Monomial::one(), summed, events, beside: false }
    }
}

/// A value that is shown, summed over ranks and divided by other sizes than theirs.
pub fn metric(tensor: &Tensor, state: &State, place: Place) -> Option<Mistake> {
    let over: AxisSet = data(&tensor.over).into_iter().collect();
    if state.unsettled {
        return None;
    }
    let part = tensor.parts.first().filter(|_| tensor.parts.len() == 1 && tensor.rows.is_none() && !over.is_empty())?;
    let tokens = Scale::of(Factor::Count(Name::from(TOKENS)));
    let value = part.value.known()?.clone();
    let ratio = part.value.times(&tokens).times(&Scale::size(&over)).known()?.clone();
    let explicit = value.powers().any(|(f, _)| matches!(f, Factor::Size(_)));
    let plain = ratio.powers().all(|(f, _)| matches!(f, Factor::Size(_)));
    if !explicit || !plain {
        return None;
    }
    // The sizes of several axes may be those of all that there are.
    let sizes = value.powers().filter(|(f, power)| matches!(f, Factor::Size(_)) && *power < 0).count();
    if over.single().is_some_and(|a| a.name() == super::groups::WORLD) && sizes > 1 {
        return None;
    }
    let mut layouts = Layouts::of(state, &[], &value, &over, &over);
    layouts.may_count(&[&Scale::Known(ratio.clone())]);
    let factor = layouts.settled(&ratio, false)?;
    // A mean over ranks that have the same changes nothing.
    let summed = |e: &Event| match &e.what {
        What::Summed(axes) => axes.iter().filter(|a| kind(a) == Kind::Model).cloned().collect(),
        _ => Vec::new(),
    };
    let model: AxisSet = part.events.iter().flat_map(summed).collect();
    let of_same = part.value.times(&tokens).times(&Scale::size(&over)).times(&Scale::size(&model));
    if !model.is_empty() && of_same.known().is_some_and(|ratio| layouts.settled(ratio, false).is_none()) {
        return None;
    }
    let last = part.events.last().map_or(place, |e| e.place);
    let (who, events) = (part.label.clone(), part.events.clone());
    let summed = tensor.over.clone();
    Some(Mistake { wrong: Wrong::Metric, place: last, who, factor, summed, events, beside: false })
}

/// Parameters by the module and what code asks of them.
pub fn name(class: &Class, state: &State) -> Name {
    let module = class.module.and_then(|m| state.modules.get(m)).map(|m| m.name.clone());
    let mut text = module.map_or("all parameters".to_string(), |m| m.to_string());
    if class.is_expert() {
        text = format!("{text}, experts");
    }
    Name::from(text)
}
