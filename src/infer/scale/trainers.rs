//! Objects of a library that wrap modules, take backward passes and reduce values for their user. In: constructors and methods with a
//! rule. Out: wrapped modules, losses with the factor that the object applies, sums over all ranks. Never: a configuration that the rule
//! does not list: nothing is known of that one. Next: `grads.rs`; `rules/models` for which library does what.

use super::Run;
use super::calls::Args;
use super::eval::{replace, tokens};
use super::value::{Event, ModId, Num, Part, State, Tensor, Test, Val, What, last};
use super::verdict::{Mistake, Wrong, accumulates};
use crate::ir::{Const, StmtId};
use crate::rules::{Entry, IntrinsicRule};
use crate::source::{Name, Place};
use crate::types::{AxisSet, Factor, Monomial, Scale};
use std::sync::Arc;

/// The place of rounds that no loop of the code is.
const NO_LOOP: usize = usize::MAX;

/// An object that trains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trainer {
    /// The name before those of its methods.
    methods: Name,
    /// The ranks over which it averages gradients; nothing if that is not known.
    axes: Option<AxisSet>,
    /// What it divides losses by.
    rounds: Scale,
    /// Inside the region in which its optimizers step once in so many rounds.
    pub accumulating: bool,
    /// The key of a configuration under which the rounds are given.
    key: Option<Name>,
    /// Where it is made.
    made: Place,
    /// Nothing says how it was made.
    unseen: bool,
}

impl Trainer {
    /// One that other code has made: it averages over all ranks, and whatever it divides by are the rounds of its steps.
    pub fn unseen(rule: &IntrinsicRule, axes: AxisSet, made: Place) -> Trainer {
        let methods = rule.role("methods").cloned().unwrap_or_default();
        let rounds = match rule.role("rounds") {
            Some(what) => Scale::of(Factor::Rounds(Name::from(format!("{}.{what}", last(&methods))))),
            None => Scale::one(),
        };
        Trainer { methods, axes: Some(axes), rounds, accumulating: true, key: None, made, unseen: true }
    }

    /// Whether both are the same, wherever they are read.
    pub fn is_like(&self, other: &Trainer) -> bool {
        self.unseen && other.unseen && self.methods == other.methods
    }
}

/// Words in names of what is not a module.
const OTHERS: &[&str] = &["optim", "sched", "loader", "data", "iter", "batch", "sampler", "tokenizer", "tracker"];

/// Words in names of functions that make a module.
const MODELS: &[&str] = &["model", "net", "former", "pretrained", "from_config", "encoder", "bert"];

fn is_module(value: &Val) -> bool {
    match value {
        Val::Module(_) => true,
        Val::Named(text) => {
            let word = last(text).to_lowercase();
            // Of a long call the text ends somewhere among its arguments.
            let made = text.split('(').next().map_or(String::new(), |callee| last(callee).to_lowercase());
            let other = |word: &str| {
                OTHERS.iter().any(|w| word.contains(w)) || word.split('_').any(|p| matches!(p, "opt" | "dl" | "lr"))
            };
            // Of a short one it ends with its arguments: it is what is made, if that is called a model.
            let fixed = text.contains("requires_grad_(") || text.contains(".eval()");
            let called = !word.is_empty() || !fixed && MODELS.iter().any(|w| made.contains(w));
            called && !other(&word) && !other(&made)
        }
        _ => false,
    }
}

/// The argument that plays a part, by position or keyword.
fn part<'v>(rule: &IntrinsicRule, args: &'v Args, role: &str) -> Option<&'v Val> {
    argument(rule, args, rule.role(role)?)
}

fn argument<'v>(rule: &IntrinsicRule, args: &'v Args, name: &str) -> Option<&'v Val> {
    let position = rule.args.index(name).filter(|at| !rule.args.params[*at].keyword_only);
    args.keyword(name).or_else(|| args.plain.get(position?))
}

/// The word that an argument has, or has by default.
fn word(rule: &IntrinsicRule, args: &Args, role: &str) -> Option<Name> {
    let name = rule.role(role)?;
    match argument(rule, args, name) {
        Some(Val::Const(Const::Str(text))) => Some(text.clone()),
        Some(Val::Path(path)) => Some(Name::from(last(path).to_lowercase())),
        Some(_) => None,
        None => {
            let default = rule.args.params.get(rule.args.index(name)?)?.default.as_ref()?;
            Some(Name::from(default.trim_matches(['\'', '"'])))
        }
    }
}

impl<'a> Run<'a> {
    fn intrinsic(&self, path: &str) -> Option<Arc<IntrinsicRule>> {
        match self.rules.get(path) {
            Some(Entry::Intrinsic(rule)) => Some(rule.clone()),
            _ => None,
        }
    }

    /// A constructor of such an object, or a function that makes one around a module.
    pub fn trainer_of(&mut self, id: StmtId, path: &str, args: &Args, state: &mut State) -> Option<Val> {
        let rule = self.intrinsic(path)?;
        match rule.does.as_str() {
            "trainer" => Some(self.trainer(id, &rule, args, state)),
            "trainer-initialize" => Some(self.initialized(id, &rule, args, state)),
            _ => None,
        }
    }

    fn trainer(&mut self, id: StmtId, rule: &IntrinsicRule, args: &Args, state: &mut State) -> Val {
        let listed = args.named.iter().all(|(name, value)| rule.args.index(name).is_some() || value.is_none());
        let chosen = match (rule.role("choice"), rule.role("choices")) {
            (Some(_), Some(choices)) => {
                word(rule, args, "choice").is_some_and(|word| choices.split(' ').any(|c| c == word.as_str()))
            }
            _ => true,
        };
        let axes = (listed && chosen && !args.open).then(|| state.everyone());
        let given = part(rule, args, "rounds");
        let rounds = match (rule.role("rounds"), given, &axes) {
            (None, _, _) | (Some(_), None, Some(_)) => Some(Scale::one()),
            (Some(_), Some(value), Some(_)) => self.factor(value),
            (Some(_), _, None) => None,
        };
        let rounds = rounds.unwrap_or_else(|| self.own_rounds(id, rule, "rounds", state));
        self.keep(id, rule, axes, rounds, state)
    }

    /// Rounds that the code does not say.
    fn own_rounds(&self, id: StmtId, rule: &IntrinsicRule, role: &str, state: &State) -> Scale {
        let what = rule.role(role).map_or("rounds", Name::as_str);
        Scale::of(Factor::Named(Name::from(format!("{}.{what}", self.text(state, id)))))
    }

    fn keep(
        &mut self,
        id: StmtId,
        rule: &IntrinsicRule,
        axes: Option<AxisSet>,
        rounds: Scale,
        state: &mut State,
    ) -> Val {
        let methods = rule.role("methods").cloned().unwrap_or_default();
        let made = self.place(state, id);
        let key = rule.role("key").cloned();
        state.trainers.push(Trainer { methods, axes, rounds, accumulating: false, key, made, unseen: false });
        Val::Trainer(state.trainers.len() - 1)
    }

    /// A module and what comes with it, under a configuration: a dict with the rounds in it.
    fn initialized(&mut self, id: StmtId, rule: &IntrinsicRule, args: &Args, state: &mut State) -> Val {
        let config = ["config", "other-config"].iter().find_map(|role| part(rule, args, role));
        let key = rule.role("key");
        let given = match config {
            Some(Val::Dict(items)) if !args.open => items.iter().find(|(n, _)| Some(n) == key).map(|(_, v)| v.clone()),
            _ => None,
        };
        let rounds = given.and_then(|v| self.factor(&v)).unwrap_or_else(|| self.own_rounds(id, rule, "key", state));
        let made = self.keep(id, rule, None, rounds, state);
        let module = match part(rule, args, "module") {
            Some(Val::Module(m)) => *m,
            Some(Val::Named(text)) => state.module(text),
            _ => state.module(&self.text(state, id)),
        };
        state.lose(&Val::Module(module));
        if let (Val::Trainer(at), Some(m)) = (made, state.modules.get_mut(module)) {
            m.trainer = Some(at);
        }
        let names = rule.role("gives").map_or("", Name::as_str).split(' ');
        Val::Tuple(std::iter::once(Val::Module(module)).chain(names.skip(1).map(Val::named)).collect())
    }

    /// A method of such an object, or of the module that it became.
    pub fn trainer_call(&mut self, id: StmtId, on: &Val, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        let at = match on {
            Val::Trainer(at) => *at,
            Val::Module(m) => state.modules.get(*m)?.trainer?,
            _ => return None,
        };
        let trainer = state.trainers.get(at)?.clone();
        let rule = self.intrinsic(&format!("{}.{name}", trainer.methods))?;
        Some(match rule.does.as_str() {
            "trainer-setup" => self.set_up(id, &trainer, args, state),
            "trainer-same" if args.plain.len() == 1 => args.plain.first()?.clone(),
            "trainer-same" => Val::Tuple(args.plain.clone()),
            "trainer-backward" => {
                self.trainer_backward(id, &rule, &trainer, args, state);
                Val::Const(Const::None)
            }
            "trainer-accumulate" => Val::Accumulating(at),
            "trainer-gather" => self.trainer_gather(id, &rule, &trainer, args, state),
            "trainer-reduce" => self.trainer_reduce(id, &rule, &trainer, args, state),
            "trainer-rounds" => state.num(trainer.rounds),
            "trainer-nothing" => Val::Named(self.text(state, id)),
            _ => return None,
        })
    }

    /// An attribute of such an object.
    pub fn trainer_attr(&mut self, id: StmtId, at: usize, name: &str, state: &mut State) -> Val {
        let unknown = Val::Named(self.text(state, id));
        let Some(trainer) = state.trainers.get(at).cloned() else { return unknown };
        let Some(rule) = self.intrinsic(&format!("{}.{name}", trainer.methods)) else { return unknown };
        match (rule.does.as_str(), &trainer.axes) {
            ("trainer-size", Some(axes)) => state.num(Scale::size(axes)),
            ("trainer-rounds", _) => state.num(trainer.rounds),
            _ => unknown,
        }
    }

    /// Modules among these are wrapped; all come back in their order.
    fn set_up(&mut self, id: StmtId, trainer: &Trainer, args: &Args, state: &mut State) -> Val {
        let place = self.place(state, id);
        let mut given: Vec<Val> = args.plain.clone();
        given.extend(
            args.named.iter().filter(|(n, _)| matches!(n.as_str(), "model" | "module")).map(|(_, v)| v.clone()),
        );
        if args.open {
            given.iter().for_each(|v| state.lose(v));
            return Val::Named(self.text(state, id));
        }
        let mut out = Vec::new();
        for value in given {
            out.push(match &trainer.axes {
                _ if !is_module(&value) => value,
                Some(axes) => self.wrap(&value, axes.clone(), place, state),
                None => {
                    let module = match &value {
                        Val::Named(text) => Val::Module(state.module(text)),
                        _ => value,
                    };
                    state.lose(&module);
                    module
                }
            });
        }
        match out.as_slice() {
            [one] => one.clone(),
            _ => Val::Tuple(out),
        }
    }

    /// The backward pass of a loss, divided by the rounds.
    fn trainer_backward(
        &mut self,
        id: StmtId,
        rule: &IntrinsicRule,
        trainer: &Trainer,
        args: &Args,
        state: &mut State,
    ) {
        let place = self.place(state, id);
        let rounds = match part(rule, args, "scales") {
            None | Some(Val::Const(Const::Bool(true))) => trainer.rounds.clone(),
            Some(Val::Const(Const::Bool(false))) => Scale::one(),
            Some(_) => Scale::Unknown,
        };
        let Some(loss) = args.plain.first().or_else(|| args.keyword(&rule.args.params.first()?.name)) else { return };
        let parts = self.parts(loss).unwrap_or_default();
        let twice = parts.iter().find_map(|p| self.divided_before(p, loss, &rounds, trainer));
        let mistake = twice.map(|at| {
            let event = |what: What, place: Place| Event { what, place, call: None };
            let events =
                vec![event(What::Own(rounds.clone()), place), event(What::Given(rounds.clone()), trainer.made)];
            let factor = rounds.known().cloned().unwrap_or(Monomial::one());
            let who = parts.first().map(|p| p.label.clone()).unwrap_or_default();
            Mistake { wrong: Wrong::Divided, place: at, who, factor, summed: AxisSet::default(), events, beside: false }
        });
        let known = mistake.is_none();
        self.plain(place, state, mistake);
        if trainer.axes.is_none() || !known {
            // Told already, or nothing is known of what it does further.
            self.backward(id, &Val::Test(Test::Known(true)), state);
            return;
        }
        let plain = rounds.known().is_some_and(Monomial::is_number);
        let before = state.terms.len();
        self.backward(id, loss, state);
        let own = state.event(What::Own(rounds.clone()), place);
        for term in state.terms.iter_mut().skip(before) {
            (term.part.grad, term.part.value) = (term.part.grad.over(&rounds), term.part.value.over(&rounds));
            if !plain && !trainer.unseen {
                term.part.events.push(own.clone());
            }
            if (trainer.accumulating || trainer.unseen) && rounds != Scale::one() {
                term.loops.push((NO_LOOP, rounds.clone()));
            }
        }
    }

    /// Where a loss was divided by the rounds by which it is about to be divided.
    fn divided_before(&self, part: &Part, loss: &Val, rounds: &Scale, trainer: &Trainer) -> Option<Place> {
        let by = rounds.known()?;
        if *rounds == Scale::one() {
            return None;
        }
        let made = match loss {
            Val::Num(Num { made, .. }) => *made,
            _ => None,
        };
        if by.is_number() {
            return self.divided_by_number(part, loss, rounds, trainer);
        }
        let grad = part.grad.known()?;
        if !by.powers().all(|(f, n)| n > 0 && grad.power(f) <= -n) {
            return None;
        }
        let over = |s: &Scale| {
            s.known().is_some_and(|m| {
                by.powers().all(|(f, n)| m.power(f) >= n) && !m.powers().any(|(f, _)| matches!(f, Factor::Count(_)))
            })
        };
        let event = part.events.iter().rfind(|e| matches!(&e.what, What::Over(s) if over(s)));
        event.map(|e| e.place).or(made)
    }

    /// The same for a number, where both places call it by one name.
    fn divided_by_number(&self, part: &Part, loss: &Val, rounds: &Scale, trainer: &Trainer) -> Option<Place> {
        let place = match loss {
            Val::Num(Num { made: Some(place), scale, .. }) => {
                let named = Scale::of(Factor::Named(part.label.clone()));
                (scale.over(&named).times(rounds) == Scale::one()).then_some(*place)?
            }
            _ => {
                if part.events.iter().any(|e| matches!(&e.what, What::Times(s) if s == rounds)) {
                    return None;
                }
                part.events.iter().rfind(|e| matches!(&e.what, What::Over(s) if s == rounds))?.place
            }
        };
        let division = self.files[place.file].slice(place.span);
        let given = self.given(trainer);
        rounds_named(division).any(|word| rounds_named(&given).any(|w| w == word)).then_some(place)
    }

    /// How the rounds are written where they are given: in the call, or beside the key of the configuration.
    fn given(&self, trainer: &Trainer) -> String {
        let mut out = self.files[trainer.made.file].slice(trainer.made.span).to_string();
        let Some(key) = &trainer.key else { return out };
        let text = self.files[trainer.made.file].whole();
        for quote in ["\"", "'"] {
            for after in text.split(format!("{quote}{key}{quote}:").as_str()).skip(1) {
                out.push(' ');
                out.push_str(after.split([',', '}', '\n']).next().unwrap_or(""));
            }
        }
        out
    }

    fn trainer_gather(
        &mut self,
        id: StmtId,
        rule: &IntrinsicRule,
        trainer: &Trainer,
        args: &Args,
        state: &mut State,
    ) -> Val {
        let unknown = Val::Named(self.text(state, id));
        let whole = part(rule, args, "group").is_none_or(Val::is_none) && !args.open;
        let (Some(axes), Some(input), true) = (&trainer.axes, args.all().next(), whole) else { return unknown };
        let place = self.place(state, id);
        self.of_all_ranks(input, (axes, place), state).unwrap_or(unknown)
    }

    /// What the ranks along some axes have, one behind the other: also each item of a tuple or a dict.
    fn of_all_ranks(&mut self, input: &Val, (axes, place): (&AxisSet, Place), state: &mut State) -> Option<Val> {
        let size = Scale::size(axes);
        match input {
            Val::Num(n) => {
                state.counted.push((axes.clone(), place));
                let one = state.num(n.scale.clone());
                Some(state.list(vec![one], Some(size)))
            }
            Val::Tensor(t) => {
                let mut t = super::collectives::cut(t);
                (t.id, t.over) = (state.fresh(), t.over.iter().chain(axes.iter()).cloned().collect());
                t.rows = Some(t.rows.map_or(size.clone(), |rows| rows.times(&size)));
                Some(Val::Tensor(t))
            }
            Val::Named(text) => Some(match self.per_token(text, state) {
                Val::Tensor(t) => {
                    Val::Tensor(Tensor { rows: Some(tokens().times(&size)), ..super::collectives::cut(&t) })
                }
                other => other,
            }),
            Val::Tuple(items) => {
                let items = items.iter().map(|item| self.of_all_ranks(item, (axes, place), state));
                items.collect::<Option<Vec<Val>>>().map(Val::Tuple)
            }
            Val::Dict(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| Some((key.clone(), self.of_all_ranks(value, (axes, place), state)?)));
                entries.collect::<Option<Vec<(Name, Val)>>>().map(Val::Dict)
            }
            _ => None,
        }
    }

    fn trainer_reduce(
        &mut self,
        id: StmtId,
        rule: &IntrinsicRule,
        trainer: &Trainer,
        args: &Args,
        state: &mut State,
    ) -> Val {
        let unknown = Val::Named(self.text(state, id));
        let whole = part(rule, args, "group").is_none_or(Val::is_none) && !args.open;
        let mean = match word(rule, args, "op").as_deref() {
            Some("sum") => false,
            Some("mean" | "avg") => true,
            _ => return unknown,
        };
        let (Some(axes), Some(input), true) = (&trainer.axes, args.all().next().cloned(), whole) else {
            return unknown;
        };
        // The sum over all ranks is another number than the one of this rank that it is made of.
        if !mean && matches!(input, Val::Named(_) | Val::Dict(_)) {
            return unknown;
        }
        let new = match self.reduced(id, false, &input, axes, mean, state) {
            Val::Tensor(t) => Val::Tensor(super::collectives::cut(&t)),
            other => other,
        };
        if rule.role("in-place").is_some() {
            replace(state, &input, &new);
        }
        new
    }
}

/// Names in a text that are of rounds of accumulation.
fn rounds_named(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| accumulates(w))
}

impl State {
    /// Entering, or leaving, a region in which the optimizers of a trainer step once in so many rounds.
    pub fn accumulate(&mut self, at: usize, inside: bool) {
        if let Some(trainer) = self.trainers.get_mut(at) {
            trainer.accumulating = inside || trainer.unseen;
        }
    }

    /// Whether a module is one that takes its backward pass in its own hands.
    pub fn is_trainer(&self, module: ModId) -> bool {
        self.modules.get(module).is_some_and(|m| m.trainer.is_some())
    }
}
