//! Views of distributed tensors. In: the sizes before and after, and which dim is split over how many ranks. Out: the dim that is
//! split afterwards, or that the run time refuses. Never: a size that is not known. Source: torch 2.15
//! `torch.distributed.tensor._ops._view_ops`, which `tests/dtensor.rs` records. Next: `op.rs`.

/// What becomes of a split dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Viewed {
    Split(usize),
    /// It is gathered first.
    Whole,
    /// The parts of a dim of this size are not of one size, and so cannot be.
    Uneven {
        size: i64,
    },
    Unknown,
}

/// Dims that a view takes together, and those that it makes of them.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    from: Vec<usize>,
    to: Vec<usize>,
}

/// The groups of a view, as the library makes them.
fn groups(from: &[i64], to: &[i64]) -> Option<Vec<Group>> {
    if from.iter().chain(to).any(|n| *n <= 0) {
        return None;
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < from.len() || j < to.len() {
        let mut group = Group { from: Vec::new(), to: Vec::new() };
        let mut f = 1;
        let mut t = 1;
        if let Some(size) = from.get(i) {
            (f, i) = (*size, i + 1);
            group.from.push(i - 1);
        }
        if let Some(size) = to.get(j) {
            (t, j) = (*size, j + 1);
            group.to.push(j - 1);
        }
        if f == 1 && t != 1 {
            j -= group.to.len();
            group.to.clear();
        } else if f != 1 && t == 1 {
            i -= group.from.len();
            group.from.clear();
        } else {
            while f != t {
                if f < t {
                    f = f.checked_mul(*from.get(i)?)?;
                    group.from.push(i);
                    i += 1;
                } else {
                    t = t.checked_mul(*to.get(j)?)?;
                    group.to.push(j);
                    j += 1;
                }
            }
        }
        out.push(group);
    }
    Some(out)
}

/// What a view makes of a split of dim `dim` over `ranks`. `split`: the dims that are split over any axis.
pub(super) fn viewed(from: &[i64], to: &[i64], dim: usize, ranks: i64, split: &[usize]) -> Viewed {
    let Some(groups) = groups(from, to) else { return Viewed::Unknown };
    let Some(group) = groups.iter().find(|g| g.from.contains(&dim)) else { return Viewed::Unknown };
    let (Some(size), Some(first)) = (from.get(dim).copied(), group.from.first().copied()) else {
        return Viewed::Unknown;
    };
    if split.iter().filter(|d| group.from.contains(d)).count() != 1 || ranks <= 0 {
        return Viewed::Unknown;
    }
    let last = group.from.last() == Some(&dim);
    if group.from.len() > 1 && !last && size % ranks != 0 {
        return Viewed::Uneven { size };
    }
    match group.to.as_slice() {
        [one] if dim == first => Viewed::Split(*one),
        [outer, _, ..] => match to.get(*outer) {
            Some(size) if size % ranks != 0 => Viewed::Uneven { size: *size },
            Some(_) if dim == first => Viewed::Split(*outer),
            Some(_) => Viewed::Whole,
            None => Viewed::Unknown,
        },
        _ => Viewed::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{Viewed, viewed};

    #[test]
    fn a_split_dim_goes_where_the_library_leaves_it() {
        assert_eq!(viewed(&[8, 8], &[64], 0, 4, &[0]), Viewed::Split(0));
        assert_eq!(viewed(&[8, 8], &[64], 1, 4, &[1]), Viewed::Unknown);
        assert_eq!(viewed(&[8, 8], &[2, 32], 1, 4, &[1]), Viewed::Uneven { size: 2 });
        assert_eq!(viewed(&[8, 8], &[16, 4], 1, 4, &[1]), Viewed::Whole);
        assert_eq!(viewed(&[8, 8], &[8, 2, 4], 0, 4, &[0]), Viewed::Split(0));
        assert_eq!(viewed(&[8, 8], &[1, 64], 0, 4, &[0]), Viewed::Split(1));
        assert_eq!(viewed(&[8, 12, 16], &[8, 4, 3, 16], 1, 4, &[1]), Viewed::Split(1));
    }
}
