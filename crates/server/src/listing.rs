//! Pages of members, limited in number and in bytes.

use crate::error::rejected;
use crate::surface::Surface;
use convoke_core::filter::Filter;
use convoke_core::member::Member;
use convoke_proto::{Error, PART_BYTES};

/// Members read from the view at once. A page exceeds its limit of bytes by at most this many members.
const STEP: usize = 64;

#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) members: Vec<T>,
    pub(crate) next: Option<String>,
}

/// Lists members from `cursor` on, converted by `show`, up to `limit` members or up to the size of one part.
pub(crate) fn list<T>(
    surface: &Surface,
    filter: &Filter,
    mut cursor: Option<String>,
    limit: Option<usize>,
    show: impl Fn(Member) -> T,
    size: impl Fn(&T) -> usize,
) -> Result<Listed<T>, Error> {
    let node = surface.readable()?;
    let most = surface.config.limits.page_members.max(1);
    let limit = limit.map_or(most, |limit| limit.min(most));
    let mut members = Vec::new();
    let mut bytes = 0;
    loop {
        let wanted = (limit - members.len()).min(STEP);
        let page = node.members(filter, cursor.as_deref(), wanted).map_err(rejected)?;
        let short = page.members.len() < wanted;
        for member in page.members {
            let shown = show(member);
            bytes += size(&shown);
            members.push(shown);
        }
        // A short page that is not the last one means that the filter matched few of many members. The caller decides
        // whether to continue.
        if page.next.is_none() || short || members.len() >= limit || bytes >= PART_BYTES {
            return Ok(Listed { members, next: page.next });
        }
        cursor = page.next;
    }
}
