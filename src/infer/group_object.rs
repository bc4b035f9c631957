//! Objects of the project that hold one process group and what is counted of it: `group.size`, `group.local_rank` beside
//! `group.process_group`. In: an unknown value whose annotation names the class. Out: the number of ranks and the own rank. Never: an object of
//! several groups, of which a count may be that of any; a rank that the class does not show to be one within the group. Next: `hinted.rs`.

use super::limits::MAX_CHOICE;
use super::machine::{Eval, Machine};
use super::names::Count;
use super::unknown_param::Annotated;
use super::value::{Closure, Flavour, Value};
use crate::ir::StmtId;
use crate::project::ClassRef;
use crate::source::Name;
use std::sync::Arc;

/// What an object calls the one group that it holds.
const GROUP: [&str; 3] = ["process_group", "group", "pg"];

/// What it calls the number of its ranks, and its own rank in it, the plainest name first.
const SIZE: [&str; 5] = ["size", "group_size", "num_ranks", "n_ranks", "world_size"];
const RANK: [&str; 4] = ["group_rank", "rank_in_group", "rank", "local_rank"];

/// The ranks of all processes of the group, in order.
const MEMBERS: &str = "ranks";

impl Machine<'_> {
    /// A count that an object keeps of its group.
    pub(super) fn counted_by_object(&mut self, path: &Name, name: &Name) -> Option<Value> {
        // The texts of classes are read for names that count alone.
        if !SIZE.contains(&name.as_str()) && !RANK.contains(&name.as_str()) {
            return None;
        }
        let (class, group) = self.object_of_group(path)?;
        let count = self.count_kept(class, name)?;
        self.object_axes(path, group).map(count)
    }

    /// The number of ranks that the list of all of them has: `len(group.ranks)`.
    pub(super) fn members_counted(&mut self, list: &Value) -> Option<Value> {
        let Value::Sym(whole) = list else { return None };
        let path = Name::from(whole.strip_suffix(MEMBERS)?.strip_suffix('.')?);
        let (_, group) = self.object_of_group(&path)?;
        self.object_axes(&path, group).map(Value::Size)
    }

    /// What a short property of such an object gives, if that is known: `group.is_trivial`.
    pub(super) fn property_of_object(&mut self, id: StmtId, path: &Name, name: &Name) -> Option<Value> {
        let Some(Annotated::Object(class)) = self.annotated.get(path) else { return None };
        let closure = self.own_property(*class, name)?;
        self.object_of_group(path)?;
        let before = self.w.clone();
        let args = super::expr::CallArgs::of(vec![Value::Sym(path.clone())]);
        let value = match self.call_closure(id, &closure, &args) {
            Eval::One(value) => value,
            Eval::Many(_) => Value::Unknown,
        };
        let known = matches!(value, Value::Const(_) | Value::Size(_) | Value::Rank(_) | Value::Group(_));
        if !known {
            self.w = before;
        }
        known.then_some(value)
    }

    fn own_property(&self, class: ClassRef, name: &Name) -> Option<Arc<Closure>> {
        let Some(Value::Closure(closure)) = self.settings.class_member(self.project, self.rules, class, name) else {
            return None;
        };
        let is_short = self.project.func(closure.func).code.count() <= MAX_CHOICE;
        (closure.flavour == Flavour::Property && is_short).then_some(closure)
    }

    /// The class of a value by its annotation, if it holds one group, and no other class derives from it; and what it calls that.
    fn object_of_group(&self, path: &Name) -> Option<(ClassRef, &'static str)> {
        let Some(Annotated::Object(class)) = self.annotated.get(path) else { return None };
        let alone = self.settings.statics.stands_for(*class).is_some_and(|all| all == [*class].as_slice());
        let group = if alone { self.held_group(*class) } else { None };
        group.map(|group| (*class, group))
    }

    /// What a class calls the one group that its objects hold.
    fn held_group(&self, class: ClassRef) -> Option<&'static str> {
        let text = self.class_text(class);
        // Most classes say neither, which is seen much faster than that none of their words is a group.
        if !text.contains("group") && !text.contains("pg") {
            return None;
        }
        let is_part =
            |word: &&str| self.settings.is_group_name(word) || word.ends_with("_groups") || word.contains("mesh");
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        // `new_group` and its kin make groups, and are none.
        let mut held =
            words.filter(is_part).filter(|word| !GROUP.contains(word) && !["new_group", "get_group"].contains(word));
        let mut own = GROUP.iter().filter(|name| keeps(text, name));
        let (found, None, None) = (*own.next()?, own.next(), held.next()) else { return None };
        Some(found)
    }

    fn class_text(&self, class: ClassRef) -> &str {
        self.files[self.project.file(class.module)].slice(self.project.class(class).span)
    }

    fn object_axes(&mut self, path: &Name, group: &str) -> Option<crate::types::AxisSet> {
        let group = self.symbol_attr(path, &Name::from(group));
        self.axes_of_value(&group)
    }

    /// What a name of such an object counts: the plainest of several names that might be the size, or the rank, within the group.
    fn count_kept(&self, class: ClassRef, name: &Name) -> Option<Count> {
        let text = self.class_text(class);
        let first = |names: &[&str]| names.iter().find(|own| keeps(text, own)).is_some_and(|own| own == name);
        if first(&SIZE) {
            return Some(Value::Size);
        }
        // The rank on a machine goes by the same name as the place among the ranks of a group.
        let shown = name != "local_rank" || keeps(text, MEMBERS);
        (first(&RANK) && shown).then_some(Value::Rank)
    }
}

/// Whether a class says that its objects have an attribute: as a field, in a constructor, or as a property.
fn keeps(class: &str, name: &str) -> bool {
    class.match_indices(name).any(|(at, _)| {
        let (before, after) = (&class[..at], class[at + name.len()..].trim_start());
        let field =
            || before.rsplit('\n').next().is_some_and(|indent| indent.trim().is_empty()) && after.starts_with(':');
        let set = || {
            before.ends_with("self.") && (after.starts_with(':') || after.starts_with('=') && !after.starts_with("=="))
        };
        let property = || before.ends_with("def ") && after.starts_with('(');
        field() || set() || property()
    })
}
