//! From an expression to what made its type. In: an offset. Out: the places that decided it, the latest first, then where it started.
//! Never: where a name is defined, which every Python server tells. Next: `types/origin.rs`.

use super::answers::Spot;
use super::types::FileTypes;
use crate::source::Place;
use lsp_types::Location;

/// The places that decided the type under the cursor.
pub fn producers(spot: &Spot<'_>, types: &FileTypes) -> Vec<Location> {
    let session = &spot.workspace.session;
    let Some(row) = types.at(session, spot.offset, spot.named().as_ref()) else { return Vec::new() };
    let mut places: Vec<Place> = Vec::new();
    let states = row.ty.local.listed().map(|(_, state)| state).chain([&row.ty.local.rest]);
    for origin in states.filter_map(|state| state.origin.as_ref()) {
        for place in [origin.place, origin.root().place] {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places.into_iter().filter_map(|place| spot.workspace.location(place, spot.encoding)).collect()
}
