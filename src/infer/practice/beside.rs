//! What the checks of one module ask of a class for one method after the other. In: classes and attributes. Out: views of methods, what
//! sets an attribute, the parts of a module, each worked out once. Never: anything that outlives the checks of a module, whose result is
//! kept with what it looked at. Next: `near.rs` and `gradient/mod.rs`, which ask.

use super::called::Calls;
use super::gradient::{Walked, Walks};
use super::view::View;
use crate::ir::{Block, FuncId, Operand, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::Name;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;

/// A statement that sets an attribute: its method, its step and the value.
pub type Assigned<'a> = (Rc<View<'a>>, usize, &'a Operand);

/// The methods of a class that set each attribute, in their order.
pub type Setters = FxHashMap<Name, Vec<FuncId>>;

/// The submodules and parameters of a class, by attribute.
#[derive(Default)]
pub struct Parts {
    pub submodules: FxHashSet<Name>,
    pub parameters: FxHashSet<Name>,
}

/// What is asked of a class or a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// Whether the text of the class turns gradients off.
    Frozen(ClassRef),
    /// Whether the file has autograd functions.
    Autograd(ModuleId),
    /// Whether the text of the file may tie weights.
    Ties(ModuleId),
    /// Whether the file names what sums gradients or parameters in a way of its own.
    Sums(ModuleId),
    /// Whether rounds fill whole windows.
    Evens(ModuleId),
    /// Whether each rank has something of what is dealt out.
    Owns(ModuleId),
}

#[derive(Default)]
pub struct Beside<'a> {
    views: Kept<FuncRef, Rc<View<'a>>>,
    setters: Kept<ClassRef, Rc<Setters>>,
    assigned: Kept<(ClassRef, Name), Vec<Assigned<'a>>>,
    parts: Kept<ClassRef, Rc<Parts>>,
    walks: Kept<Walks, Option<Rc<Walked>>>,
    answers: Kept<Question, bool>,
    calls: Kept<ModuleId, Rc<Calls>>,
    inner: Kept<(ClassRef, Name), Option<(FuncRef, usize)>>,
}

/// Answers by what was asked.
struct Kept<K, V>(RefCell<FxHashMap<K, V>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Kept(RefCell::default())
    }
}

impl<K: Hash + Eq, V: Clone> Kept<K, V> {
    fn get(&self, key: K, make: impl FnOnce() -> V) -> V {
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let made = make();
        self.0.borrow_mut().insert(key, made.clone());
        made
    }
}

impl<'a> Beside<'a> {
    pub fn view(&self, at: FuncRef, make: impl FnOnce() -> View<'a>) -> Rc<View<'a>> {
        self.views.get(at, || Rc::new(make()))
    }

    pub fn setters(&self, class: ClassRef, make: impl FnOnce() -> Setters) -> Rc<Setters> {
        self.setters.get(class, || Rc::new(make()))
    }

    pub fn assigned(&self, class: ClassRef, attr: &str, make: impl FnOnce() -> Vec<Assigned<'a>>) -> Vec<Assigned<'a>> {
        self.assigned.get((class, Name::from(attr)), make)
    }

    pub fn parts(&self, class: ClassRef, make: impl FnOnce() -> Parts) -> Rc<Parts> {
        self.parts.get(class, || Rc::new(make()))
    }

    pub fn walk(&self, of: Walks, make: impl FnOnce() -> Option<Walked>) -> Option<Rc<Walked>> {
        self.walks.get(of, || make().map(Rc::new))
    }

    pub fn calls(&self, module: ModuleId, make: impl FnOnce() -> Calls) -> Rc<Calls> {
        self.calls.get(module, || Rc::new(make()))
    }

    /// The pass through what is inside of a wrapper, that a class keeps as an attribute.
    pub fn inner(
        &self,
        of: (ClassRef, Name),
        make: impl FnOnce() -> Option<(FuncRef, usize)>,
    ) -> Option<(FuncRef, usize)> {
        self.inner.get(of, make)
    }

    pub fn answer(&self, question: Question, make: impl FnOnce() -> bool) -> bool {
        self.answers.get(question, make)
    }
}

/// Adds the attributes that statements of a block set.
pub fn attributes_set<'b>(block: &'b Block, out: &mut Vec<&'b Name>) {
    for node in block {
        match &node.stmt {
            Stmt::SetAttr { name, .. } => out.push(name),
            stmt => stmt.blocks().for_each(|inner| attributes_set(inner, out)),
        }
    }
}
