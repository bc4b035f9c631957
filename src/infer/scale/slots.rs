//! Values by small numbers, in pages that paths share until one of them changes a value; a comparison passes over what is shared. In: values.
//! Out: [`Slots`]. Never: what the values mean. Next: `value.rs`.

use super::super::shared::Shared;
use super::value::Val;

/// Values of one page.
const PAGE: usize = 8;

#[derive(Clone, Debug, Default)]
struct Page {
    values: [Option<Shared<Val>>; PAGE],
    /// Some value was put here that has a number of its own, or holds one.
    numbered: bool,
}

/// Values by small numbers.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    pages: Vec<Option<Shared<Page>>>,
}

impl Slots {
    fn shared(&self, at: usize) -> Option<&Shared<Val>> {
        self.pages.get(at / PAGE)?.as_ref()?.values[at % PAGE].as_ref()
    }

    pub fn get(&self, at: usize) -> Option<&Val> {
        self.shared(at).map(|v| &**v)
    }

    /// The slot of a number, to be written.
    fn slot(&mut self, at: usize) -> &mut Page {
        let page = at / PAGE;
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        self.pages[page].get_or_insert_default()
    }

    pub fn insert(&mut self, at: usize, value: Val) {
        let page = self.slot(at);
        page.numbered |= value.is_numbered();
        let slot = &mut page.values[at % PAGE];
        *slot = Some(Shared::new(value));
    }

    pub fn remove(&mut self, at: usize) {
        if self.get(at).is_some() {
            self.slot(at).values[at % PAGE] = None;
        }
    }

    /// The values, in the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = &Val> {
        self.pages.iter().flatten().flat_map(|page| page.values.iter().flatten()).map(|v| &**v)
    }

    /// Values that have numbers of their own.
    pub fn numbered(&self) -> impl Iterator<Item = &Val> {
        let pages = self.pages.iter().flatten().filter(|page| page.numbered);
        pages.flat_map(|page| page.values.iter().flatten()).map(|v| &**v)
    }

    /// Whether others are put in the place of some.
    pub fn changes(&self, other: &dyn Fn(&Val) -> Option<Val>) -> bool {
        self.numbered().any(|v| other(v).is_some())
    }

    /// Puts others in the place of numbered values; those for which there is none stay.
    pub fn change(&mut self, other: &dyn Fn(&Val) -> Option<Val>) {
        for page in self.pages.iter_mut().flatten().filter(|page| page.numbered) {
            for i in 0..PAGE {
                if let Some(new) = value(Some(page), i).and_then(|v| other(v)) {
                    page.values[i] = Some(Shared::new(new));
                }
            }
        }
    }

    /// Whether both have equal values; where only one has a value, whether that does not matter.
    pub fn alike(&self, other: &Slots, silent: impl Fn(usize) -> bool) -> bool {
        (0..self.pages.len().max(other.pages.len())).all(|at| {
            let (a, b) = (self.pages.get(at).and_then(Option::as_ref), other.pages.get(at).and_then(Option::as_ref));
            let same = match (a, b) {
                (Some(a), Some(b)) => a.is(b),
                (None, None) => true,
                _ => false,
            };
            same || {
                (0..PAGE).all(|i| match (value(a, i), value(b, i)) {
                    (Some(x), Some(y)) => x == y,
                    (None, None) => true,
                    _ => silent(at * PAGE + i),
                })
            }
        })
    }
}

fn value(page: Option<&Shared<Page>>, i: usize) -> Option<&Shared<Val>> {
    page.and_then(|page| page.values[i].as_ref())
}

impl PartialEq for Slots {
    fn eq(&self, other: &Slots) -> bool {
        self.alike(other, |_| false)
    }
}

impl Eq for Slots {}
