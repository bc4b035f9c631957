//! A persistent map by small ids. In: ids and values. Out: [`IdMap`], whose clones share every part that neither of them wrote, so that
//! a comparison passes over what is shared. Never: removal; ids are dense, so a tree by their digits stays flat. Next: `heap.rs`.

use std::sync::Arc;

/// Bits of an id that one level of the tree tells apart.
const BITS: u32 = 4;
const FAN: usize = 1 << BITS;

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf([Option<T>; FAN]),
    Branch([Option<Arc<Node<T>>>; FAN]),
}

/// Values by id.
#[derive(Clone, Debug)]
pub struct IdMap<T> {
    root: Option<Arc<Node<T>>>,
    /// Levels of branches above the leaves.
    height: u32,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        IdMap { root: None, height: 0 }
    }
}

fn digit(id: u32, level: u32) -> usize {
    (id >> (level * BITS)) as usize % FAN
}

impl<T: Clone> Node<T> {
    fn empty(level: u32) -> Node<T> {
        match level {
            0 => Node::Leaf([const { None }; FAN]),
            _ => Node::Branch([const { None }; FAN]),
        }
    }

    /// A tree with this one as its first part.
    fn over(self: Arc<Self>) -> Arc<Node<T>> {
        let mut parts = [const { None }; FAN];
        parts[0] = Some(self);
        Arc::new(Node::Branch(parts))
    }
}

impl<T: Clone + PartialEq> IdMap<T> {
    /// Whether the tree is high enough for an id.
    fn covers(&self, id: u32) -> bool {
        (id >> (self.height * BITS)) < (1 << BITS)
    }

    pub fn get(&self, id: u32) -> Option<&T> {
        if !self.covers(id) {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut level = self.height;
        loop {
            match node {
                Node::Leaf(values) => return values[digit(id, 0)].as_ref(),
                Node::Branch(parts) => node = parts[digit(id, level)].as_deref()?,
            }
            level -= 1;
        }
    }

    /// A value to change; the parts on the way to it are no longer shared.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.get(id)?;
        self.slot(id).as_mut()
    }

    pub fn insert(&mut self, id: u32, value: T) {
        *self.slot(id) = Some(value);
    }

    fn slot(&mut self, id: u32) -> &mut Option<T> {
        while !self.covers(id) {
            self.root = self.root.take().map(Node::over);
            self.height += 1;
        }
        let mut level = self.height;
        let mut node = Arc::make_mut(self.root.get_or_insert_with(|| Arc::new(Node::empty(level))));
        loop {
            match node {
                Node::Leaf(values) => return &mut values[digit(id, 0)],
                Node::Branch(parts) => {
                    let part = &mut parts[digit(id, level)];
                    level -= 1;
                    node = Arc::make_mut(part.get_or_insert_with(|| Arc::new(Node::empty(level))));
                }
            }
        }
    }

    /// Every id with its value, in order.
    pub fn for_each(&self, then: &mut dyn FnMut(u32, &T)) {
        if let Some(root) = &self.root {
            visit(root, 0, then);
        }
    }

    /// Takes what only another map has; a part that is missing here altogether is shared with it.
    pub fn complete(&mut self, other: &IdMap<T>) {
        let Some(theirs) = &other.root else { return };
        if self.root.is_none() {
            *self = other.clone();
            return;
        }
        while self.height < other.height {
            self.root = self.root.take().map(Node::over);
            self.height += 1;
        }
        let raised = (other.height..self.height).fold(theirs.clone(), |root, _| root.over());
        self.root.iter_mut().for_each(|mine| complete(mine, &raised));
    }

    /// Ids at which both maps have values, but not the same ones, in order.
    pub fn changes(&self, other: &IdMap<T>, then: &mut dyn FnMut(u32, &T, &T)) {
        self.compare(other, false, &mut |id, known, value| {
            if let Some(known) = known {
                then(id, known, value);
            }
        });
    }

    /// Ids at which another map has a value that is not the same as here, in order, with both values.
    pub fn differences(&self, other: &IdMap<T>, then: &mut dyn FnMut(u32, Option<&T>, &T)) {
        self.compare(other, true, then);
    }

    /// `all`: what only the other map has is visited as well.
    fn compare(&self, other: &IdMap<T>, all: bool, then: &mut dyn FnMut(u32, Option<&T>, &T)) {
        let raised = |map: &IdMap<T>, height: u32| {
            let root = map.root.clone();
            (map.height..height).fold(root, |root, _| root.map(Node::over))
        };
        let height = self.height.max(other.height);
        if let Some(theirs) = raised(other, height) {
            differ(raised(self, height).as_ref(), &theirs, 0, all, then);
        }
    }
}

fn visit<T>(node: &Node<T>, base: u32, then: &mut dyn FnMut(u32, &T)) {
    match node {
        Node::Leaf(values) => {
            for (id, value) in (base << BITS..).zip(values) {
                if let Some(value) = value {
                    then(id, value);
                }
            }
        }
        Node::Branch(parts) => {
            for (base, part) in (base << BITS..).zip(parts) {
                if let Some(part) = part {
                    visit(part, base, then);
                }
            }
        }
    }
}

fn differ<T: PartialEq>(
    mine: Option<&Arc<Node<T>>>,
    theirs: &Arc<Node<T>>,
    base: u32,
    all: bool,
    then: &mut dyn FnMut(u32, Option<&T>, &T),
) {
    if mine.map_or(!all, |mine| Arc::ptr_eq(mine, theirs)) {
        return;
    }
    match theirs.as_ref() {
        Node::Leaf(values) => {
            let own = match mine.map(AsRef::as_ref) {
                Some(Node::Leaf(own)) => Some(own),
                _ => None,
            };
            for (i, value) in values.iter().enumerate() {
                let known = own.and_then(|own| own[i].as_ref());
                if let Some(value) = value
                    && known != Some(value)
                {
                    then((base << BITS) + i as u32, known, value);
                }
            }
        }
        Node::Branch(parts) => {
            let own = match mine.map(AsRef::as_ref) {
                Some(Node::Branch(own)) => Some(own),
                _ => None,
            };
            for (i, part) in parts.iter().enumerate() {
                if let Some(part) = part {
                    differ(own.and_then(|own| own[i].as_ref()), part, (base << BITS) + i as u32, all, then);
                }
            }
        }
    }
}

fn complete<T: Clone>(mine: &mut Arc<Node<T>>, theirs: &Arc<Node<T>>) {
    if Arc::ptr_eq(mine, theirs) {
        return;
    }
    match theirs.as_ref() {
        Node::Leaf(values) => {
            let lacks = |own: &[Option<T>; FAN]| own.iter().zip(values).any(|(x, y)| x.is_none() && y.is_some());
            if matches!(mine.as_ref(), Node::Leaf(own) if lacks(own))
                && let Node::Leaf(own) = Arc::make_mut(mine)
            {
                for (own, value) in own.iter_mut().zip(values).filter(|(own, _)| own.is_none()) {
                    own.clone_from(value);
                }
            }
        }
        Node::Branch(parts) => {
            let Node::Branch(own) = Arc::make_mut(mine) else { return };
            for (own, part) in own.iter_mut().zip(parts) {
                match (own, part) {
                    (Some(own), Some(part)) => complete(own, part),
                    (own, Some(_)) => own.clone_from(part),
                    (_, None) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(ids: &[u32]) -> IdMap<u32> {
        let mut map = IdMap::default();
        ids.iter().for_each(|id| map.insert(*id, *id));
        map
    }

    #[test]
    fn what_is_inserted_is_found_in_order() {
        let ids = [3, 0, 17, 4095, 256, 70_000, 16];
        let map = filled(&ids);
        let mut found = Vec::new();
        map.for_each(&mut |id, value| found.push((id, *value)));
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        assert_eq!(found, sorted.iter().map(|id| (*id, *id)).collect::<Vec<_>>());
        assert!(ids.iter().all(|id| map.get(*id) == Some(id)));
        assert_eq!([map.get(1), map.get(1 << 20), map.get(u32::MAX)], [None; 3]);
    }

    #[test]
    fn differences_are_what_the_other_changed_or_added() {
        let a = filled(&[1, 20, 300]);
        let mut b = a.clone();
        b.insert(20, 21);
        b.insert(5000, 5);
        let mut c = a.clone();
        c.insert(7, 7);
        let seen = |x: &IdMap<u32>, y: &IdMap<u32>| {
            let mut out = Vec::new();
            x.differences(y, &mut |id, old, new| out.push((id, old.copied(), *new)));
            out
        };
        assert_eq!(seen(&a, &a.clone()), []);
        assert_eq!(seen(&a, &b), [(20, Some(20), 21), (5000, None, 5)]);
        assert_eq!(seen(&b, &c), [(7, None, 7), (20, Some(21), 20)]);
        assert_eq!(a.get(20), Some(&20));
    }

    /// Copies that go their own ways differ exactly in what was written since.
    #[test]
    fn differences_are_complete() {
        let mut seed = 12_345_u64;
        let mut random = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % n
        };
        let mut maps = vec![(IdMap::<u32>::default(), std::collections::BTreeMap::<u32, u32>::new())];
        for step in 0..20_000_u32 {
            let at = random(maps.len());
            if random(40) == 0 {
                let (copy, to) = (maps[at].clone(), random(8));
                if to < maps.len() {
                    maps[to] = copy
                } else {
                    maps.push(copy)
                }
                continue;
            }
            let id = if random(2) == 0 { step } else { random(step as usize + 1) as u32 };
            maps[at].0.insert(id, step);
            maps[at].1.insert(id, step);
            if step % 50 == 0 {
                let (a, b) = (&maps[at], &maps[random(maps.len())]);
                let differ = b.1.iter().filter(|(id, value)| a.1.get(id) != Some(value));
                let expected: Vec<_> = differ.map(|(id, value)| (*id, a.1.get(id).copied(), *value)).collect();
                let mut found = Vec::new();
                a.0.differences(&b.0, &mut |id, old, new| found.push((id, old.copied(), *new)));
                assert_eq!(found, expected);
                let mut changed = Vec::new();
                a.0.changes(&b.0, &mut |id, old, new| changed.push((id, Some(*old), *new)));
                assert_eq!(changed, expected.into_iter().filter(|(_, old, _)| old.is_some()).collect::<Vec<_>>());
                let mut both = a.0.clone();
                both.complete(&b.0);
                let mut all = Vec::new();
                both.for_each(&mut |id, value| all.push((id, *value)));
                let mut union = b.1.clone();
                union.extend(&a.1);
                assert_eq!(all, union.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_largest_id_fits() {
        let map = filled(&[u32::MAX, 0]);
        assert_eq!(map.get(u32::MAX), Some(&u32::MAX));
        assert_eq!(map.get(0), Some(&0));
    }
}
