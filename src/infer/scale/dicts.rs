//! Entries of dicts and lists under construction, such as losses by their names. In: a method of a dict, a loop over it, an entry that is
//! set. Out: its values, its keys, or a change of it. Never: keys that are not known. Next: `methods.rs`.

use super::Run;
use super::calls::Args;
use super::exec::Elements;
use super::value::{State, Val};
use crate::ir::{Const, Operand};
use crate::source::Name;
use crate::types::Scale;

/// Entries that a loop looks at one by one.
const MOST: usize = 8;

/// Entries of a dict, each once.
pub type Entries = [(Name, Val)];

fn key(name: &Name) -> Val {
    Val::Const(Const::Str(name.clone()))
}

/// The entry of a name.
pub fn entry(entries: &Entries, name: &str) -> Option<Val> {
    entries.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
}

/// A loop over a dict.
pub fn keys(entries: &Entries) -> Elements {
    match entries.len() <= MOST {
        true => Elements::Each(entries.iter().map(|(name, _)| key(name)).collect()),
        false => Elements::Rounds(Scale::Unknown, Box::new(Val::named("key"))),
    }
}

impl Run<'_> {
    /// A method of a dict.
    pub fn of_dict(
        &mut self,
        base: &Operand,
        entries: &Entries,
        name: &str,
        args: &Args,
        state: &mut State,
    ) -> Option<Val> {
        let first = args.plain.first();
        match (name, first) {
            ("get" | "pop", Some(asked)) => {
                let asked = asked.text()?;
                entries.iter().find(|(n, _)| n == asked).map(|(_, v)| v.clone())
            }
            ("values", None) => Some(state.list(entries.iter().map(|(_, v)| v.clone()).collect(), None)),
            ("keys", None) => Some(state.list(entries.iter().map(|(n, _)| key(n)).collect(), None)),
            ("items", None) => {
                let pairs = entries.iter().map(|(n, v)| Val::Tuple(vec![key(n), v.clone()])).collect();
                Some(state.list(pairs, None))
            }
            ("update", Some(Val::Dict(more))) => {
                let kept = entries.iter().filter(|(n, _)| more.iter().all(|(m, _)| m != n));
                let all = kept.chain(more).cloned().collect();
                self.put_whole(base, Val::Dict(all), state);
                Some(Val::Const(Const::None))
            }
            // What else is in it then is not known.
            ("update" | "setdefault", _) => {
                self.put_whole(base, Val::named("dict"), state);
                Some(Val::named("entry"))
            }
            _ => None,
        }
    }

    pub fn set_item(&mut self, base: &Operand, index: &Operand, value: &Operand, state: &mut State) {
        let (whole, key, value) = (self.operand(base, state), self.operand(index, state), self.operand(value, state));
        match (&whole, key.text()) {
            (Val::Dict(items), Some(key)) => {
                let mut items = items.clone();
                items.retain(|(n, _)| n != key);
                items.push((key.clone(), value));
                self.put_whole(base, Val::Dict(items), state);
            }
            // Gradients by their parameters.
            (Val::Dict(items), None) if items.is_empty() && matches!(value, Val::Grad(_)) => {
                let list = state.list(vec![Val::Tuple(vec![key, value])], None);
                self.put_whole(base, list, state);
            }
            (Val::Grad(g), _) => self.put_entries(&g.clone(), &key, &value, state),
            // The own block of a gathered list, put back: all entries count alike.
            (Val::List(l), _) => self.put_back(*l, &value, state),
            _ => {}
        }
    }

    /// Writes what a variable holds, or the attribute that it was read from.
    pub fn put_whole(&mut self, base: &Operand, value: Val, state: &mut State) {
        let (Operand::Local(local), Some(at)) = (base, state.frames.last().map(|f| f.at)) else { return };
        state.set(*local, value.clone());
        let view = self.view(at);
        let [def] = view.defs(*local) else { return };
        let Some(crate::ir::Rvalue::Attr { base: Operand::Local(owner), name }) = view.value(*def) else { return };
        if let (true, Some(Val::Object(object))) = (view.is_temp(*local), state.get(*owner).cloned()) {
            let number = self.number(name);
            if let Some(o) = state.objects.get_mut(object) {
                o.attrs.insert(number, value);
            }
        }
    }

    /// An entry of a gathered list whose gradients were cut off is one with gradients again.
    fn put_back(&self, list: usize, value: &Val, state: &mut State) {
        let whole = match value {
            Val::Tensor(t) => Some(t.parts.clone()),
            Val::Named(text) => match self.per_token(text, state) {
                Val::Tensor(t) => Some(t.parts),
                _ => None,
            },
            _ => None,
        };
        let (Some(parts), Some(list)) = (whole, state.lists.get_mut(list)) else { return };
        if list.length.is_some()
            && let [Val::Tensor(t)] = list.items.as_mut_slice()
        {
            t.parts = parts;
            state.put_back |= matches!(value, Val::Named(_));
        }
    }
}
