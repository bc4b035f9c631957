//! Boolean expressions over flags, and what a world knows of them. In: atoms. Out: [`Formula`] (evaluated under [`Facts`] to true,
//! false or the atom to split on). Never: SAT; facts are conjunctions. Source: DESIGN.md section 5. Next: `world.rs`.

use super::groups::is_all_ranks;
use super::limits::{MAX_RULE_ATOMS, MAX_TIED_WORLDS, MAX_WORLDS};
use super::model_axis::is_of_model;
use super::scale::value::EVERY;
use super::settings::is_degree;
use crate::ir::Const;
use crate::source::Name;
use crate::types::Axis;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A test of a flag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    /// The flag is true.
    True(Name),
    /// The value is `None`.
    IsNone(Name),
    /// The value equals a constant.
    Equals(Name, Const),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    Const(bool),
    Atom(Atom),
    Not(Box<Formula>),
    And(Vec<Formula>),
    Or(Vec<Formula>),
}

/// The outcome of a test in one world.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Decided(bool),
    /// Depends on this atom, which the world does not know.
    Open(Atom),
}

/// What one world knows: atoms with their truth, in the order in which they were met, and what holds between further ones.
#[derive(Clone, Debug, Eq, Default)]
pub struct Facts {
    atoms: Arc<[(Atom, bool)]>,
    /// Formulas that are true: what is left of the facts of worlds that were joined because nothing else told them apart.
    rules: Arc<[Arc<Formula>]>,
}

impl PartialEq for Facts {
    fn eq(&self, other: &Facts) -> bool {
        // Most worlds that are compared come from the same one, and differ in what was met last.
        let same = |(a, b): (&(Atom, bool), &(Atom, bool))| a.1 == b.1 && a.0 == b.0;
        let (mine, theirs) = (&*self.atoms, &*other.atoms);
        (Arc::ptr_eq(&self.atoms, &other.atoms)
            || mine.len() == theirs.len() && mine.iter().rev().zip(theirs.iter().rev()).all(same))
            && (Arc::ptr_eq(&self.rules, &other.rules) || self.rules == other.rules)
    }
}

impl Hash for Facts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.atoms.hash(state);
    }
}

/// Whether an atom says that there is one rank only: `tp.size == 1`, and of all ranks also that nothing is parallel.
fn is_of_one(atom: &Atom, value: bool, axis: &Axis) -> bool {
    let of_all = is_all_ranks(axis);
    match atom {
        Atom::Equals(path, Const::Int(1)) if value => {
            let last = path.rsplit('.').next().unwrap_or(path);
            let counts = is_degree(last) || matches!(last, "size" | "SIZE" | "ranks" | "n_ranks" | "num_ranks");
            let words = || path.split(|c: char| !c.is_alphanumeric());
            let says = |name: &str| words().any(|word| word.eq_ignore_ascii_case(name));
            // `_MPU_WORLD_SIZE`: the unit is that of the axis over which layers are split.
            counts && (of_all || says(axis.name()) || says("mpu") && is_of_model(axis))
        }
        Atom::True(path) if !value && of_all => {
            let last = path.rsplit('.').next().unwrap_or(path);
            ["distributed", "parallel"].iter().any(|end| last.ends_with(end))
                && !["sequence_parallel", "context_parallel"].iter().any(|end| last.ends_with(end))
        }
        Atom::True(_) | Atom::IsNone(_) | Atom::Equals(..) => false,
    }
}

impl Facts {
    pub fn is_empty(&self) -> bool {
        self.atoms.is_empty()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&Atom, bool)> {
        self.atoms.iter().map(|(a, v)| (a, *v))
    }
    /// The truth of an atom, by itself or by what it excludes.
    pub fn get(&self, atom: &Atom) -> Option<bool> {
        self.atoms.iter().find_map(|(known, value)| implied(known, *value, atom))
    }
    /// Whether the group of an axis is `None` here, so that it has no ranks, or has only one.
    pub fn lack(&self, axis: &Axis) -> bool {
        let path = || Name::from(axis.name());
        axis.is_variable()
            && (self.get(&Atom::IsNone(path())) == Some(true) || self.get(&Atom::True(path())) == Some(false))
            || self.atoms.iter().any(|(atom, value)| is_of_one(atom, *value, axis))
    }
    #[must_use]
    pub fn with(&self, atom: Atom, value: bool) -> Facts {
        let atoms = self.atoms.iter().cloned().chain([(atom, value)]).collect();
        Facts { atoms, rules: self.rules.clone() }
    }
    /// Whether an attribute that nothing sets in sight is one thing in an object and another in a second one, or in a configuration: nobody
    /// said that they may differ, and where a base keeps it they do not.
    pub fn tells_objects_apart(&self) -> bool {
        // `layout is "x"` of a test that stands for one attribute is told from that of another value.
        let attribute = |name: &'_ str| -> (String, String) {
            let (path, value) = name.split_once(" is ").unwrap_or((name, ""));
            let last =
                if path.contains('#') { path.split_once('.').map(|(_, rest)| rest) } else { path.rsplit('.').next() };
            (last.unwrap_or(path).to_owned(), value.to_owned())
        };
        let same_but_for_object = |a: &Atom, b: &Atom| match (a, b) {
            (Atom::True(a), Atom::True(b)) | (Atom::IsNone(a), Atom::IsNone(b)) => attribute(a) == attribute(b),
            (Atom::Equals(a, x), Atom::Equals(b, y)) => x == y && attribute(a) == attribute(b),
            _ => false,
        };
        let own = self.atoms.iter().filter(|(atom, _)| atom.name().contains('#'));
        own.into_iter().any(|(a, x)| self.atoms.iter().any(|(b, y)| a != b && x != y && same_but_for_object(a, b)))
    }
    /// Whether the worlds cannot be one: a flag has another value in each.
    pub fn contradicts(&self, other: &Facts) -> bool {
        self.atoms.iter().any(|(atom, value)| other.get(atom).is_some_and(|known| known != *value))
    }
    /// Whether nothing that is known contradicts the rest.
    pub fn possible(&self) -> bool {
        self.rules.iter().all(|r| r.truth(self) != Some(false))
    }
    /// What holds in both worlds: the facts they share, and that it is one or the other.
    #[must_use]
    pub fn common(&self, other: &Facts) -> Facts {
        if self == other {
            return self.clone();
        }
        let atoms = shared(&self.atoms, &other.atoms);
        let mut rules = shared(&self.rules, &other.rules);
        // Where nothing is known beyond what is shared, either always holds.
        let is_beyond = |facts: &Facts| facts.atoms.len() > atoms.len() || facts.rules.len() > rules.len();
        if is_beyond(self) && is_beyond(other) && !self.is_other_side(other, (atoms.len(), rules.len())) {
            let either = Formula::Or(vec![self.beyond(&atoms, &rules), other.beyond(&atoms, &rules)]);
            let names = either.atoms();
            if names.len() <= MAX_RULE_ATOMS && !either.always(&names) {
                rules.push(Arc::new(either));
            }
        }
        Facts { atoms: atoms.into(), rules: rules.into() }
    }
    /// Whether the two worlds are the sides of one test: beyond so many facts that they share, each knows its answer and nothing else.
    fn is_other_side(&self, other: &Facts, (atoms, rules): (usize, usize)) -> bool {
        let one = |facts: &Facts| facts.atoms.len() == atoms + 1 && facts.rules.len() == rules;
        let opposed =
            matches!((self.atoms.last(), other.atoms.last()), (Some((a, x)), Some((b, y))) if a == b && x != y);
        one(self) && one(other) && opposed
    }
    /// What is known beyond these atoms and rules, as a formula.
    fn beyond(&self, atoms: &[(Atom, bool)], rules: &[Arc<Formula>]) -> Formula {
        let fact = |(a, v): &(Atom, bool)| match v {
            true => Formula::Atom(a.clone()),
            false => Formula::Atom(a.clone()).negate(),
        };
        let own = self.atoms.iter().filter(|f| !atoms.contains(f)).map(fact);
        let further = self.rules.iter().filter(|r| !rules.contains(r)).map(|r| r.as_ref().clone());
        Formula::And(own.chain(further).collect())
    }
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&Atom) -> bool) -> Facts {
        Facts { atoms: self.atoms.iter().filter(|(a, _)| keep(a)).cloned().collect(), rules: Arc::default() }
    }
    /// The flags that are asked for, by their last names.
    pub fn flags(&self) -> Vec<Name> {
        let mut out: Vec<Name> = self.atoms.iter().map(|(atom, _)| last_name(atom)).collect();
        for rule in &*self.rules {
            rule.each_atom(&mut |atom| out.push(last_name(atom)));
        }
        out.retain(|name| !name.starts_with('?'));
        out.sort_unstable();
        out.dedup();
        out
    }
    /// Whether these facts and others can be so that all rules hold, as far as so many steps tell.
    fn allow(&self, rules: &[&Formula], steps: &mut usize) -> bool {
        let mut open = None;
        for rule in rules {
            match rule.eval(self) {
                Outcome::Decided(false) => return false,
                Outcome::Decided(true) => {}
                Outcome::Open(atom) => open = open.or(Some(atom)),
            }
        }
        *steps = steps.saturating_sub(1);
        match open {
            Some(atom) if *steps > 0 => {
                [false, true].iter().any(|side| self.with(atom.clone(), *side).allow(rules, steps))
            }
            Some(_) | None => true,
        }
    }
    /// Whether no fact of the one is denied by a fact of the other.
    pub fn may_hold_with(&self, other: &Facts) -> bool {
        self.iter().all(|(atom, value)| other.get(atom).is_none_or(|v| v == value))
    }
    /// Whether code that asks nothing but these atoms goes the same ways from both. `most`: the facts that it knew at most, from here.
    pub fn decides_like(&self, other: &Facts, asked: &[Atom], most: usize) -> bool {
        let (n, m) = (self.atoms.len(), other.atoms.len());
        // Above the cap flags are not told apart any more.
        if n != m && (most >= MAX_WORLDS || most + m >= MAX_WORLDS + n) {
            return false;
        }
        let mut names: Vec<Name> = asked.iter().map(|a| a.name().clone()).collect();
        let (mine, theirs) = (self.rules_about(&names), other.rules_about(&names));
        if mine != theirs {
            return false;
        }
        names.extend(mine.iter().flat_map(|rule| rule.atoms()).map(|a| a.name().clone()));
        let about = |facts: &Facts| -> Vec<(Atom, bool)> {
            facts.atoms.iter().filter(|(a, _)| names.contains(a.name())).cloned().collect()
        };
        about(self) == about(other)
    }
    /// The rules that facts on these names may decide.
    fn rules_about(&self, names: &[Name]) -> Vec<Arc<Formula>> {
        self.rules.iter().filter(|rule| rule.atoms().iter().any(|a| names.contains(a.name()))).cloned().collect()
    }
    /// These facts, learned from `old`, as learned from `new`.
    pub fn rebased(&self, old: &Facts, new: &Facts) -> Option<Facts> {
        let (atoms, rules) = (self.atoms.strip_prefix(&*old.atoms)?, self.rules.strip_prefix(&*old.rules)?);
        Some(Facts {
            atoms: new.atoms.iter().chain(atoms).cloned().collect(),
            rules: new.rules.iter().chain(rules).cloned().collect(),
        })
    }
    /// The worlds without rules that this one stands for, at most so many.
    pub fn expanded(&self, most: usize) -> Vec<Facts> {
        let mut done = Vec::new();
        let mut open = vec![self.clone()];
        while let Some(facts) = open.pop() {
            let undecided = facts.rules.iter().find_map(|r| match r.eval(&facts) {
                Outcome::Decided(_) => None,
                Outcome::Open(atom) => Some(atom),
            });
            match undecided {
                _ if !facts.possible() => {}
                Some(atom) if done.len() + open.len() + 1 < most => {
                    open.push(facts.with(atom.clone(), false));
                    open.push(facts.with(atom, true));
                }
                Some(_) | None => done.push(Facts { atoms: facts.atoms, rules: Arc::default() }),
            }
        }
        done
    }
}

/// The items of one list that another one has as well. Lists that grew from the same one agree at their start.
fn shared<T: Clone + PartialEq>(mine: &[T], theirs: &[T]) -> Vec<T> {
    let start = mine.iter().zip(theirs).take_while(|(x, y)| x == y).count();
    let rest = mine[start..].iter().filter(|item| theirs.contains(item));
    mine[..start].iter().chain(rest).cloned().collect()
}

/// What holds between flags, asked of the worlds of one finding after another.
pub struct Tied<'t> {
    ties: &'t [Formula],
    names: FxHashSet<Name>,
    /// Whether all of it can hold at once.
    can_hold: bool,
    /// Facts that were asked for each by itself, and together.
    alone: FxHashMap<(Atom, bool), bool>,
    together: FxHashMap<Vec<(Atom, bool)>, bool>,
}

impl<'t> Tied<'t> {
    pub fn new(ties: &'t [Formula]) -> Tied<'t> {
        let mut names = FxHashSet::default();
        ties.iter().for_each(|tie| {
            tie.each_atom(&mut |atom| {
                names.insert(atom.name().clone());
            });
        });
        let can_hold = Tied::allows(ties, Vec::new(), &[]);
        Tied { ties, names, can_hold, alone: FxHashMap::default(), together: FxHashMap::default() }
    }
    fn allows(ties: &[Formula], atoms: Vec<(Atom, bool)>, own: &[Formula]) -> bool {
        let rules: Vec<&Formula> = ties.iter().chain(own).collect();
        let mut steps = MAX_TIED_WORLDS;
        Facts { atoms: atoms.into(), rules: Arc::default() }.allow(&rules, &mut steps)
    }
    /// Whether these facts are denied together, though none of them is alone.
    pub fn refuses(&mut self, facts: &Facts) -> bool {
        if !self.can_hold {
            return false;
        }
        let own: Vec<Formula> = facts.rules.iter().map(|rule| rule.by_last_names()).collect();
        let is_asked = |name: &Name| {
            self.names.contains(name) || own.iter().any(|rule| rule.atoms().iter().any(|atom| atom.name() == name))
        };
        let named = facts.atoms.iter().map(|(atom, value)| (atom.named(last_name(atom)), *value));
        let mut asked: Vec<(Atom, bool)> = named.filter(|(atom, _)| is_asked(atom.name())).collect();
        let (ties, alone) = (self.ties, &mut self.alone);
        asked.retain(|fact| {
            *alone.entry(fact.clone()).or_insert_with_key(|fact| Tied::allows(ties, vec![fact.clone()], &[]))
        });
        if !own.is_empty() {
            return !Tied::allows(ties, asked, &own);
        }
        !*self.together.entry(asked).or_insert_with_key(|asked| Tied::allows(ties, asked.clone(), &[]))
    }
}

/// The name of a flag without the object that has it.
pub fn last_name(atom: &Atom) -> Name {
    atom.name().rsplit('.').next().map_or_else(|| atom.name().clone(), Name::from)
}

impl Atom {
    /// The same test of another flag.
    fn named(&self, name: Name) -> Atom {
        match self {
            Atom::True(_) => Atom::True(name),
            Atom::IsNone(_) => Atom::IsNone(name),
            Atom::Equals(_, c) => Atom::Equals(name, c.clone()),
        }
    }
    pub fn name(&self) -> &Name {
        match self {
            Atom::True(name) | Atom::IsNone(name) | Atom::Equals(name, _) => name,
        }
    }
}

/// What a known atom says of another one.
fn implied(known: &Atom, value: bool, asked: &Atom) -> Option<bool> {
    if known.name() != asked.name() {
        return None;
    }
    match (known, asked) {
        (Atom::True(_), Atom::True(_)) | (Atom::IsNone(_), Atom::IsNone(_)) => Some(value),
        (Atom::Equals(_, x), Atom::Equals(_, y)) if x == y => Some(value),
        _ if !value => None,
        (Atom::Equals(..), Atom::Equals(..)) => Some(false),
        (Atom::Equals(_, x), Atom::IsNone(_)) => Some(*x == Const::None),
        (Atom::IsNone(_), Atom::Equals(_, y)) => Some(*y == Const::None),
        (Atom::IsNone(_), Atom::True(_)) | (Atom::True(_), Atom::IsNone(_)) => Some(false),
        (Atom::Equals(_, x), Atom::True(_)) => truth(x),
        (Atom::True(_), Atom::Equals(..)) => None,
    }
}

/// The truth of a constant.
pub fn truth(c: &Const) -> Option<bool> {
    Some(match c {
        Const::None => false,
        Const::Bool(b) => *b,
        Const::Int(n) => *n != 0,
        Const::Float(bits) => f64::from_bits(*bits) != 0.0,
        Const::Str(s) => !s.is_empty(),
        Const::Ellipsis => true,
    })
}

impl Formula {
    #[must_use]
    pub fn negate(self) -> Formula {
        match self {
            Formula::Const(b) => Formula::Const(!b),
            Formula::Not(f) => *f,
            f => Formula::Not(Box::new(f)),
        }
    }

    pub fn each_atom(&self, then: &mut dyn FnMut(&Atom)) {
        match self {
            Formula::Const(_) => {}
            Formula::Atom(a) => then(a),
            Formula::Not(f) => f.each_atom(then),
            Formula::And(items) | Formula::Or(items) => items.iter().for_each(|f| f.each_atom(then)),
        }
    }

    /// The formula over flags without the objects that have them.
    fn by_last_names(&self) -> Formula {
        let all = |items: &[Formula]| items.iter().map(Formula::by_last_names).collect();
        match self {
            Formula::Const(b) => Formula::Const(*b),
            Formula::Atom(atom) => Formula::Atom(atom.named(last_name(atom))),
            Formula::Not(f) => Formula::Not(Box::new(f.by_last_names())),
            Formula::And(items) => Formula::And(all(items)),
            Formula::Or(items) => Formula::Or(all(items)),
        }
    }

    /// Every atom, once.
    pub fn atoms(&self) -> Vec<Atom> {
        let mut out = Vec::new();
        self.each_atom(&mut |a| {
            if !out.contains(a) {
                out.push(a.clone());
            }
        });
        out
    }

    /// Whether the formula is true whatever its atoms are.
    fn always(&self, atoms: &[Atom]) -> bool {
        // What each atom says of each one, false and true.
        let says: Vec<Vec<[Option<bool>; 2]>> = atoms
            .iter()
            .map(|asked| atoms.iter().map(|a| [implied(a, false, asked), implied(a, true, asked)]).collect())
            .collect();
        let indexed = self.indexed(atoms);
        (0..1_usize << atoms.len()).all(|bits| {
            let truth = |at: usize| says[at].iter().enumerate().find_map(|(i, says)| says[bits >> i & 1]) == Some(true);
            indexed.holds(&truth)
        })
    }

    /// The formula over the places of its atoms.
    fn indexed(&self, atoms: &[Atom]) -> Indexed {
        let all = |items: &[Formula]| items.iter().map(|f| f.indexed(atoms)).collect();
        match self {
            Formula::Const(b) => Indexed::Const(*b),
            Formula::Atom(a) => Indexed::Atom(atoms.iter().position(|b| a == b).expect("the list has every atom")),
            Formula::Not(f) => Indexed::Not(Box::new(f.indexed(atoms))),
            Formula::And(items) => Indexed::And(all(items)),
            Formula::Or(items) => Indexed::Or(all(items)),
        }
    }

    /// The truth of the formula under the facts, if they decide it.
    fn truth(&self, facts: &Facts) -> Option<bool> {
        let all = |items: &[Formula], stop: bool| {
            let mut open = false;
            for item in items {
                match item.truth(facts) {
                    Some(b) if b == stop => return Some(stop),
                    Some(_) => {}
                    None => open = true,
                }
            }
            (!open).then_some(!stop)
        };
        match self {
            Formula::Const(b) => Some(*b),
            Formula::Atom(atom) => facts.get(atom),
            Formula::Not(f) => f.truth(facts).map(|b| !b),
            Formula::And(items) => all(items, false),
            Formula::Or(items) => all(items, true),
        }
    }

    /// The truth of the formula under the facts, or the first atom that decides.
    pub fn eval(&self, facts: &Facts) -> Outcome {
        match self {
            Formula::Const(b) => Outcome::Decided(*b),
            Formula::Atom(atom) => match facts.get(atom) {
                Some(value) => Outcome::Decided(value),
                None => Outcome::Open(atom.clone()),
            },
            Formula::Not(f) => match f.eval(facts) {
                Outcome::Decided(b) => Outcome::Decided(!b),
                open => open,
            },
            Formula::And(items) => eval_all(items, facts, false),
            Formula::Or(items) => eval_all(items, facts, true),
        }
    }
}

/// A formula whose atoms are places in a list.
enum Indexed {
    Const(bool),
    Atom(usize),
    Not(Box<Indexed>),
    And(Vec<Indexed>),
    Or(Vec<Indexed>),
}

impl Indexed {
    fn holds(&self, truth: &impl Fn(usize) -> bool) -> bool {
        match self {
            Indexed::Const(b) => *b,
            Indexed::Atom(at) => truth(*at),
            Indexed::Not(f) => !f.holds(truth),
            Indexed::And(items) => items.iter().all(|f| f.holds(truth)),
            Indexed::Or(items) => items.iter().any(|f| f.holds(truth)),
        }
    }
}

/// Conjunction (`stop` = false) or disjunction (`stop` = true).
fn eval_all(items: &[Formula], facts: &Facts, stop: bool) -> Outcome {
    let mut open = None;
    for item in items {
        match item.eval(facts) {
            Outcome::Decided(b) if b == stop => return Outcome::Decided(stop),
            Outcome::Decided(_) => {}
            Outcome::Open(atom) => open = open.or(Some(atom)),
        }
    }
    open.map_or(Outcome::Decided(!stop), Outcome::Open)
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_fact(self, true))
    }
}

/// An atom with its truth, for people.
pub fn show_fact(atom: &Atom, value: bool) -> String {
    if let Atom::True(name) = atom
        && let Some(rounds) = name.strip_prefix(EVERY)
    {
        let is = if value { "is" } else { "is not" };
        return format!("the number of the round {is} divisible by `{rounds}`");
    }
    match (atom, value) {
        (Atom::True(name), true) => format!("`{}` is true", shown(name)),
        (Atom::True(name), false) => format!("`{}` is false", shown(name)),
        (Atom::IsNone(name), true) => format!("`{}` is None", shown(name)),
        (Atom::IsNone(name), false) => format!("`{}` is not None", shown(name)),
        (Atom::Equals(name, c), true) => format!("`{}` is {}", shown(name), show_const(c)),
        (Atom::Equals(name, c), false) => format!("`{}` is not {}", shown(name), show_const(c)),
    }
}

/// The name of a flag without the number that tells objects of one class apart.
pub fn shown(name: &str) -> String {
    match name.split_once('#') {
        Some((class, rest)) => format!("{class}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => name.to_string(),
    }
}

/// A constant as written in Python.
pub fn show_const(c: &Const) -> String {
    match c {
        Const::None => "None".to_string(),
        Const::Bool(b) => if *b { "True" } else { "False" }.to_string(),
        Const::Int(n) => n.to_string(),
        Const::Float(bits) => f64::from_bits(*bits).to_string(),
        Const::Str(s) => format!("{s:?}"),
        Const::Ellipsis => "...".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Atom, show_fact};
    use crate::source::Name;

    #[test]
    fn a_condition_on_the_round_is_told_as_one() {
        let atom = Atom::True(Name::from("every args.accumulation"));
        assert_eq!(show_fact(&atom, true), "the number of the round is divisible by `args.accumulation`");
        assert_eq!(show_fact(&atom, false), "the number of the round is not divisible by `args.accumulation`");
        assert_eq!(show_fact(&Atom::True(Name::from("layer#3.bias")), true), "`layer.bias` is true");
    }
}
