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
    /// False if there may be more members than this node knows (N7).
    pub(crate) complete: bool,
}

/// The part of a list to return.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) cursor: Option<String>,
    pub(crate) limit: Option<usize>,
    /// Return what the node holds, even if it may lack members (N7).
    pub(crate) partial: bool,
}

/// Lists members from the cursor on, converted by `show`, up to `limit` members or up to the size of one part.
pub(crate) fn list<T>(
    surface: &Surface,
    filter: &Filter,
    part: Part,
    show: impl Fn(Member) -> T,
    size: impl Fn(&T) -> usize,
) -> Result<Listed<T>, Error> {
    let node = surface.readable()?;
    let Part { mut cursor, limit, partial } = part;
    let absence = node.absence();
    let complete = absence.is_ok();
    if !partial {
        absence.map_err(rejected)?;
    }
    let most = surface.config.limits.page_members.max(1);
    let limit = limit.map_or(most, |limit| limit.min(most));
    let mut members = Vec::new();
    let mut bytes = 0;
    loop {
        let wanted = (limit - members.len()).min(STEP);
        let page = node.held_members(filter, cursor.as_deref(), wanted).map_err(rejected)?;
        let short = page.members.len() < wanted;
        for member in page.members {
            let shown = show(member);
            bytes += size(&shown);
            members.push(shown);
        }
        // A short page that is not the last one means that the filter matched few of many members. The caller decides
        // whether to continue.
        if page.next.is_none() || short || members.len() >= limit || bytes >= PART_BYTES {
            return Ok(Listed { members, next: page.next, complete });
        }
        cursor = page.next;
    }
}
