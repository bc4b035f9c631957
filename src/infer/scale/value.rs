//! What variables hold, seen as factors. In: nothing. Out: [`Val`], and [`State`] of one path through a function. Never: execution.
//! Next: `exec.rs`.

use super::super::shared::Shared;
use super::norms::Norm;
use super::round::Round;
use super::slots::Slots;
use crate::ir::{Const, LocalId};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Idx, Name, Place};
use crate::types::{Axis, AxisSet, Scale};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value that a reduction in place changes wherever it is held.
pub type Id = u32;
pub type ClassId = usize;
pub type ModId = usize;
pub type ListId = usize;
pub type ObjId = usize;

/// What a factor comes from, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A mean, or a sum, of what one rank has.
    Mean,
    Sum,
    Times(Scale),
    Over(Scale),
    Summed(AxisSet),
    Averaged(AxisSet),
    /// Wrapped by something that averages.
    Wrapped(AxisSet),
    /// What one rank has is counted.
    Counted,
    /// A count of all ranks.
    AllCounted,
    /// Gradients of so many rounds add up.
    Rounds(Scale),
    Backward,
    /// Another rank has sent it.
    Received,
    /// A comment says so.
    Said,
    /// What takes the backward pass divides by it itself; where it was told so.
    Own(Scale),
    Given(Scale),
}

/// Where a factor comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub what: What,
    pub place: Place,
    /// The call in the root that leads there.
    pub call: Option<Place>,
}

/// A summand of a loss, as a sum over the tokens of one rank times factors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub label: Name,
    /// The factor that its gradient carries.
    pub grad: Scale,
    /// The factor that its value carries.
    pub value: Scale,
    pub events: Vec<Event>,
}

/// Losses and what they are computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub id: Id,
    pub parts: Vec<Part>,
    /// One value for each token; how many there are. `None`: one value.
    pub rows: Option<Scale>,
    /// The axes over which the value is summed.
    pub over: AxisSet,
    /// Added to what was zero before.
    pub added: bool,
}

/// A number, a count or a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Num {
    pub id: Id,
    pub scale: Scale,
    pub added: bool,
    /// The product that it is.
    pub made: Option<Place>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    Known(bool),
    /// Of the configuration, by how it is written.
    Flag(Name),
    /// Of the parameter in hand.
    Param(Name),
    /// Every so many rounds.
    Every(Name, Scale),
    Not(Box<Test>),
    And(Vec<Test>),
    Or(Vec<Test>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Val {
    /// Not known but by how it is written.
    Named(Name),
    Const(Const),
    /// A name outside the project.
    Path(Name),
    Zero(Id),
    Num(Num),
    /// A mask or labels: what is counted.
    Mask,
    Test(Test),
    Group(AxisSet),
    Mesh(Vec<Axis>),
    Tensor(Tensor),
    /// Several scalars in one tensor.
    Pack(Vec<Val>),
    Tuple(Vec<Val>),
    Dict(Vec<(Name, Val)>),
    List(ListId),
    /// The parameters of a module, or of all.
    Params(Option<ModId>),
    Param(ClassId),
    Grad(Grad),
    /// A norm of gradients, or what is made of one.
    Norm(Norm),
    /// A gradient that another rank has sent; where it was multiplied.
    Received(Option<Place>),
    /// The rest of a division by so much.
    Modulo(Scale),
    /// The full name of the parameter in hand.
    ParamName,
    Module(ModId),
    Optimizer,
    Func(FuncRef),
    Class(ClassRef),
    /// An object of a library that trains; the region in which its optimizers step once in so many rounds.
    Trainer(usize),
    Accumulating(usize),
    Object(ObjId),
    Method(ObjId, FuncRef),
    /// A loss function; whether it takes the mean.
    LossFunction(Option<bool>),
    /// A reduction: whether it takes the mean; `None`: another one.
    Reduce(Option<bool>),
    /// So many rounds over elements.
    Rounds(Scale, Box<Val>),
}

/// Gradients, alone or joined, and what a copy of them was multiplied with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grad {
    pub of: Vec<ClassId>,
    pub by: Scale,
    pub events: Vec<Event>,
    /// What this rank has of a distributed tensor.
    pub local: bool,
    /// In memory of its own: what is done to it is not done to the gradients.
    pub copy: bool,
}

/// A list under construction.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct List {
    pub items: Vec<Val>,
    /// How many there are, where one item stands for all.
    pub length: Option<Scale>,
}

/// The gradients of some parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub module: Option<ModId>,
    /// What is known of these parameters.
    pub facts: BTreeMap<Name, bool>,
    /// The factor since the backward pass.
    pub after: Scale,
    pub over: AxisSet,
    pub events: Vec<Event>,
    /// What hooks and wrappers do at every backward pass.
    pub always: (Scale, AxisSet, Vec<Event>),
    /// Replaced by two that tell more.
    pub split: Option<(ClassId, ClassId)>,
    /// The axes over which a reduction has left each rank a part.
    pub shards: AxisSet,
    /// The calls that lead to where they were clipped since the backward pass, and that place.
    pub clipped: Option<Arc<[Place]>>,
    /// The last reduction, with the calls that lead there.
    pub way: Vec<Place>,
    /// Whether a copy of them was what it reduced.
    pub copied: bool,
}

/// A loss that gradients were taken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub part: Part,
    /// The loops around the backward pass, with their rounds.
    pub loops: Vec<(usize, Scale)>,
    /// Conditions on the round under which it runs.
    pub every: Vec<Name>,
    pub place: Place,
}

/// A module and what averages its gradients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    pub name: Name,
    /// Of the project, where it is made in sight.
    pub class: Option<ClassRef>,
    pub parent: Option<ModId>,
    /// The group and the divisor of each wrapper.
    pub wraps: super::grads::Wraps,
    /// Something that is not followed may change its gradients.
    pub lost: bool,
    /// Another function of the file wraps it so, as far as that can be told.
    pub assumed: bool,
    /// What takes its backward pass.
    pub trainer: Option<usize>,
    /// What a rank has of its gradients.
    pub keeps: Option<super::norms::Keeps>,
    /// The statements of the file made it, and the function under execution has not used it: its gradients are none of a step there.
    pub unused: bool,
}

/// An object of a class of the project.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Object {
    pub class: Option<ClassRef>,
    /// Attributes by the number of their name in this run.
    pub attrs: Slots,
}

/// Variables of a function under execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub at: FuncRef,
    pub locals: Slots,
    /// Where it is called.
    pub call: Option<Place>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    Return(Box<Val>),
    /// `break` or `continue`.
    Leave,
    Raise,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub frames: Shared<Vec<Shared<Frame>>>,
    pub objects: Shared<Vec<Shared<Object>>>,
    /// Sizes of mesh dims by the numbers that they were made with.
    pub sizes: Shared<BTreeMap<Name, AxisSet>>,
    pub lists: Shared<Vec<Shared<List>>>,
    pub modules: Shared<Vec<Module>>,
    pub trainers: Shared<Vec<super::trainers::Trainer>>,
    pub classes: Shared<Vec<Class>>,
    pub terms: Shared<Vec<Term>>,
    /// Axes over which tokens were counted together.
    pub counted: Shared<Vec<(AxisSet, Place)>>,
    /// A batch was cut by the rank after that: tokens of a loss are no longer those that were counted.
    pub cut_after: bool,
    /// What factor a gradient should have is not known: ranks share what a loss is of (a batch was cut by the rank, or parts were put
    /// together with a gradient), so that a count may be of the whole; or the learning rate has the factor.
    pub unsettled: bool,
    /// The own part of what all ranks have was put back between the others: some losses of it are of all rows.
    pub put_back: bool,
    /// What the path has decided of flags, and of conditions on the round.
    pub facts: Shared<BTreeMap<Name, bool>>,
    pub round: Shared<Round>,
    /// Names of products of axes: `dp_cp`.
    pub aliases: Shared<BTreeMap<Name, Vec<Axis>>>,
    /// Groups that go by another name as well.
    pub same: Shared<BTreeMap<Name, AxisSet>>,
    /// The file uses a model axis, so that all ranks are more than those of the data axes.
    pub of_model: bool,
    /// All axes of a mesh that was made.
    pub world: Shared<Option<AxisSet>>,
    /// How many ranks the axes of a mesh have, where it was made with a number or with a product of sizes.
    pub dims: Shared<BTreeMap<Axis, Scale>>,
    /// Variables of functions that have handed out an inner one.
    pub left: Shared<Vec<Shared<Frame>>>,
    /// The parameters in hand.
    pub param: Option<ClassId>,
    pub loops: Shared<Vec<(usize, Scale)>>,
    pub flow: Flow,
    /// Where the function under execution returned.
    pub returned: Option<Place>,
    pub next: Id,
}

impl Default for State {
    fn default() -> State {
        State {
            frames: Shared::default(),
            objects: Shared::default(),
            sizes: Shared::default(),
            lists: Shared::default(),
            modules: Shared::default(),
            trainers: Shared::default(),
            classes: Shared::default(),
            terms: Shared::default(),
            counted: Shared::default(),
            cut_after: false,
            unsettled: false,
            put_back: false,
            facts: Shared::default(),
            round: Shared::default(),
            aliases: Shared::default(),
            same: Shared::default(),
            of_model: false,
            world: Shared::default(),
            dims: Shared::default(),
            left: Shared::default(),
            param: None,
            loops: Shared::default(),
            flow: Flow::Next,
            returned: None,
            next: 0,
        }
    }
}

impl State {
    pub fn fresh(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    /// A step that gives a factor, here.
    pub fn event(&self, what: What, place: Place) -> Event {
        Event { what, place, call: self.frames.iter().find_map(|f| f.call) }
    }

    pub fn num(&mut self, scale: Scale) -> Val {
        let id = self.fresh();
        Val::Num(Num { id, scale, added: false, made: None })
    }

    pub fn list(&mut self, items: Vec<Val>, length: Option<Scale>) -> Val {
        self.lists.push(Shared::new(List { items, length }));
        Val::List(self.lists.len() - 1)
    }

    pub fn get(&self, local: LocalId) -> Option<&Val> {
        self.frames.last()?.locals.get(local.index())
    }

    pub fn set(&mut self, local: LocalId, value: Val) {
        if let Some(frame) = self.frames.last_mut() {
            frame.locals.insert(local.index(), value);
        }
    }

    /// The classes that stand for a class now.
    pub fn leaves(&self, class: ClassId) -> Vec<ClassId> {
        match self.classes.get(class).and_then(|c| c.split) {
            Some((a, b)) => [self.leaves(a), self.leaves(b)].concat(),
            None => vec![class],
        }
    }

    /// The values with numbers of their own, wherever they are held.
    pub fn numbered(&self, then: &mut dyn FnMut(&Val)) {
        for frame in self.frames.iter() {
            frame.locals.numbered().for_each(|v| each(v, then));
        }
        for object in self.objects.iter() {
            object.attrs.numbered().for_each(|v| each(v, then));
        }
        for list in self.lists.iter() {
            list.items.iter().for_each(|v| each(v, then));
        }
    }

    /// Puts others in the place of values with numbers of their own; those for which there is none stay.
    pub fn change(&mut self, other: &dyn Fn(&Val) -> Option<Val>) {
        let other = |v: &Val| changed(v, other);
        if self.frames.iter().any(|f| f.locals.changes(&other)) {
            self.frames.iter_mut().filter(|f| f.locals.changes(&other)).for_each(|f| f.locals.change(&other));
        }
        if self.objects.iter().any(|o| o.attrs.changes(&other)) {
            self.objects.iter_mut().filter(|o| o.attrs.changes(&other)).for_each(|o| o.attrs.change(&other));
        }
        let concerned = |l: &Shared<List>| l.items.iter().any(|v| other(v).is_some());
        if self.lists.iter().any(concerned) {
            for list in self.lists.iter_mut().filter(|l| concerned(l)) {
                for item in &mut list.items {
                    if let Some(new) = other(item) {
                        *item = new;
                    }
                }
            }
        }
    }
}

fn each(value: &Val, then: &mut dyn FnMut(&Val)) {
    match value {
        Val::Pack(items) | Val::Tuple(items) => items.iter().for_each(|v| each(v, then)),
        Val::Dict(items) => items.iter().for_each(|(_, v)| each(v, then)),
        _ => then(value),
    }
}

/// A value with others in the place of what it holds; nothing if all of that stays.
fn changed(value: &Val, other: &dyn Fn(&Val) -> Option<Val>) -> Option<Val> {
    let all = |items: &[Val]| {
        let new: Vec<Option<Val>> = items.iter().map(|v| changed(v, other)).collect();
        let any = new.iter().any(Option::is_some);
        any.then(|| new.into_iter().zip(items).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect())
    };
    match value {
        Val::Pack(items) => all(items).map(Val::Pack),
        Val::Tuple(items) => all(items).map(Val::Tuple),
        Val::Dict(items) => {
            let new: Vec<Option<Val>> = items.iter().map(|(_, v)| changed(v, other)).collect();
            let pair =
                |(new, (name, old)): (Option<Val>, &(Name, Val))| (name.clone(), new.unwrap_or_else(|| old.clone()));
            let any = new.iter().any(Option::is_some);
            any.then(|| Val::Dict(new.into_iter().zip(items).map(pair).collect()))
        }
        _ => other(value),
    }
}

impl Val {
    pub fn named(text: &str) -> Val {
        Val::Named(Name::from(text))
    }

    pub fn id(&self) -> Option<Id> {
        match self {
            Val::Zero(id) | Val::Num(Num { id, .. }) | Val::Tensor(Tensor { id, .. }) | Val::Norm(Norm { id, .. }) => {
                Some(*id)
            }
            _ => None,
        }
    }

    /// The ids of a tensor and of those packed in it.
    pub fn ids(&self) -> Vec<Id> {
        match self {
            Val::Pack(items) => items.iter().flat_map(Val::ids).collect(),
            other => other.id().into_iter().collect(),
        }
    }

    /// Whether it has a number of its own, or may hold what has one, or is a copy of gradients, which others may be put in the place of.
    pub fn is_numbered(&self) -> bool {
        match self {
            Val::Zero(_)
            | Val::Num(_)
            | Val::Tensor(_)
            | Val::Norm(_)
            | Val::Pack(_)
            | Val::Tuple(_)
            | Val::Dict(_) => true,
            Val::Grad(g) => g.by != Scale::one(),
            _ => false,
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Val::Const(Const::None))
    }

    pub fn text(&self) -> Option<&Name> {
        match self {
            Val::Const(Const::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// The last part of how a value that is not known is written: `dp_group` of `self.dp_group`.
    pub fn last(&self) -> Option<&str> {
        match self {
            Val::Named(text) | Val::Path(text) => Some(last(text)),
            _ => None,
        }
    }
}

/// The last identifier of a text; nothing if it ends otherwise.
pub fn last(text: &str) -> &str {
    text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(text)
}

impl Tensor {
    /// So many times as much.
    pub fn times(&self, scale: &Scale) -> Tensor {
        let mut out = self.clone();
        for p in &mut out.parts {
            (p.grad, p.value) = (p.grad.times(scale), p.value.times(scale));
        }
        out
    }
}

/// How the names of conditions on rounds begin; no flag of the user has a space.
pub const EVERY: &str = "every ";

impl Test {
    /// Once in so many rounds.
    pub fn every_so_often(rounds: &Scale) -> Test {
        Test::Every(Name::from(format!("{EVERY}{rounds}")), rounds.clone())
    }

    /// Where this holds once in so many rounds, what was added up since is as many times what one round adds.
    pub fn sums_up(&self, holds: bool, state: &mut State) {
        match self {
            Test::Every(_, scale) if holds => state.change(&|v| match v {
                Val::Num(n) if n.added => {
                    Some(Val::Num(Num { scale: n.scale.times(scale), added: false, ..n.clone() }))
                }
                Val::Tensor(t) if t.added => Some(Val::Tensor(Tensor { added: false, ..t.times(scale) })),
                _ => None,
            }),
            Test::Not(inner) => inner.sums_up(!holds, state),
            Test::And(items) if holds => items.iter().for_each(|t| t.sums_up(true, state)),
            Test::Or(items) if !holds => items.iter().for_each(|t| t.sums_up(false, state)),
            _ => {}
        }
    }

    /// The conditions on the round in it.
    pub fn every(&self) -> Vec<Name> {
        match self {
            Test::Every(name, _) => vec![name.clone()],
            Test::Not(inner) => inner.every(),
            Test::And(items) | Test::Or(items) => items.iter().flat_map(Test::every).collect(),
            _ => Vec::new(),
        }
    }

    #[must_use]
    pub fn negate(self) -> Test {
        match self {
            Test::Known(b) => Test::Known(!b),
            Test::Not(inner) => *inner,
            other => Test::Not(Box::new(other)),
        }
    }
}

impl Class {
    pub fn new(module: Option<ModId>) -> Class {
        Class {
            module,
            facts: BTreeMap::new(),
            after: Scale::one(),
            over: AxisSet::default(),
            events: Vec::new(),
            always: (Scale::one(), AxisSet::default(), Vec::new()),
            split: None,
            shards: AxisSet::default(),
            clipped: None,
            way: Vec::new(),
            copied: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::last;

    #[test]
    fn a_last_part_begins_after_a_character_of_any_width() {
        assert_eq!(last("self.dp_group"), "dp_group");
        assert_eq!(last("shown.\u{feff}rank"), "rank");
        assert_eq!(last("size"), "size");
        assert_eq!(last("f(x)"), "");
    }
}
