//! What the unwind table says of one code address, asked before framehop acts on it.
//!
//! framehop falls back to following the frame pointer whenever it has no table, no row or a row that it cannot
//! express: a guess, which gives plausible frames that are wrong. So each address is looked up here first, once for
//! each distinct address of a process, and framehop is given only the rows that it follows exactly. Rows that need
//! memory or arithmetic for the CFA (realigned stacks, PLT stubs) are computed in [`super::expression`]; a row that
//! needs a register that the walk does not have ends the walk, and the reason says which.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, Encoding, EndianSlice, LittleEndian, Pointer,
    Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _,
};

use super::{arch::register, image::Tables};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Longest expression kept; real ones have less than 20 bytes.
const MAX_EXPRESSION: usize = 128;
/// Largest distance from a register to the CFA, or from the CFA to a saved register.
const MAX_DISTANCE: i64 = 1 << 40;

/// How to get from a frame to its caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// The outermost frame: its return address is undefined.
    Outermost,
    /// Offsets from the stack or frame pointer alone: framehop follows it exactly.
    Plain,
    /// Some of it must be computed.
    Computed(Computed),
    /// The trampoline that a signal handler returns to.
    Signal,
}

/// A row that framehop does not express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Computed {
    /// The CFA: the caller's stack pointer.
    pub(super) cfa: Place,
    /// Where the caller's frame pointer is.
    pub(super) frame: Saved,
    /// Where the return address is.
    pub(super) back: Saved,
    /// What the expressions are read with.
    pub(super) encoding: Encoding,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A register and a distance.
    Register(Register, i64),
    /// A DWARF expression.
    Expression(Vec<u8>),
}

/// Where a register of the caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// It was not changed.
    Unchanged,
    /// In memory at the CFA and a distance.
    At(i64),
    /// In memory at the address that an expression gives.
    AtExpression(Vec<u8>),
    /// It is the CFA and a distance.
    Is(i64),
    /// It is what an expression gives.
    IsExpression(Vec<u8>),
}

/// No row for an address, and whether the reason is that the table does not cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoRow {
    /// The table is good but has no row for the address.
    pub(super) uncovered: bool,
    /// The reason, as one clause.
    pub(super) why: String,
}

impl NoRow {
    fn broken(why: String) -> Self {
        Self { uncovered: false, why }
    }
}

/// The row for `svma`, an address as the image states it.
pub(super) fn look_up(tables: &Tables, svma: u64) -> Result<Row, NoRow> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(tables.index_svma).set_eh_frame(tables.frames_svma);
    let damaged = |error: gimli::Error| match error {
        gimli::Error::NoUnwindInfoForAddress => {
            NoRow { uncovered: true, why: "no unwind information".into() }
        }
        error => NoRow::broken(format!("damaged unwind information ({error})")),
    };
    let header = EhFrameHdr::new(&tables.index, LittleEndian).parse(&bases, 8).map_err(damaged)?;
    let table = header.table().ok_or_else(|| NoRow::broken("an unwind table without an index".into()))?;
    let mut section = EhFrame::new(&tables.frames, LittleEndian);
    section.set_address_size(8);
    // gimli's own `fde_for_address` subtracts without a check: the index of a damaged table points anywhere.
    let Pointer::Direct(place) = table.lookup(svma, &bases).map_err(damaged)? else {
        return Err(NoRow::broken("an unwind table that points indirectly".into()));
    };
    let offset = place.checked_sub(tables.frames_svma).and_then(|offset| usize::try_from(offset).ok());
    let offset =
        offset.ok_or_else(|| NoRow::broken("damaged unwind information (a pointer out of it)".into()))?;
    let entry =
        section.fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset).map_err(damaged)?;
    if !entry.contains(svma) {
        return Err(damaged(gimli::Error::NoUnwindInfoForAddress));
    }
    if entry.is_signal_trampoline() {
        return Ok(Row::Signal);
    }
    let encoding = entry.cie().encoding();
    let mut context = UnwindContext::new();
    let row = entry.unwind_info_for_address(&section, &bases, &mut context, svma).map_err(damaged)?;

    let back = row.register(register::RETURN);
    if matches!(back, Some(RegisterRule::Undefined)) {
        return Ok(Row::Outermost);
    }
    let kept = |expression: &UnwindExpression<usize>| keep(&section, expression);
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            if ![register::STACK, register::FRAME].contains(register) {
                return Err(NoRow::broken(format!(
                    "the CFA is in register {}, which is not known",
                    register.0
                )));
            }
            Place::Register(*register, bounded(*offset)?)
        }
        CfaRule::Expression(expression) => Place::Expression(kept(expression)?),
    };
    let frame = saved(row.register(register::FRAME).as_ref(), kept)?;
    let back = saved(back.as_ref(), kept)?;
    Ok(if is_plain(&cfa, &frame, &back) {
        Row::Plain
    } else {
        Row::Computed(Computed { cfa, frame, back, encoding })
    })
}

/// framehop keeps the row as one of its rules, exactly (`translate_into_unwind_rule` in its `x86_64/dwarf.rs`).
///
/// Rows that it would evaluate without keeping are not plain: when memory is missing in the middle of one, it
/// remembers the frame pointer rule for that address instead.
#[cfg(target_arch = "x86_64")]
fn is_plain(cfa: &Place, frame: &Saved, back: &Saved) -> bool {
    let Place::Register(base, distance) = *cfa else { return false };
    if *back != Saved::At(-8) || distance < 8 || distance % 8 != 0 || distance > i64::from(u16::MAX) * 8 {
        return false;
    }
    match *frame {
        Saved::Unchanged => base == register::STACK,
        Saved::At(from) if base == register::FRAME => distance == 16 && from == -16,
        Saved::At(from) => is_short(from.saturating_add(distance)),
        _ => false,
    }
}

/// framehop keeps the row as one of its rules, exactly (`translate_into_unwind_rule` in its `aarch64/dwarf.rs`).
#[cfg(target_arch = "aarch64")]
fn is_plain(cfa: &Place, frame: &Saved, back: &Saved) -> bool {
    let Place::Register(base, distance) = *cfa else { return false };
    let unit = if base == register::STACK { 16 } else { 8 };
    if distance < 0 || distance % unit != 0 || distance > i64::from(u16::MAX) * unit {
        return false;
    }
    match (back, frame) {
        (Saved::Unchanged, Saved::Unchanged) => base == register::STACK,
        (Saved::At(back), Saved::Unchanged) => {
            base == register::STACK && is_short(back.saturating_add(distance))
        }
        (Saved::At(back), Saved::At(frame)) => {
            is_short(back.saturating_add(distance)) && is_short(frame.saturating_add(distance))
        }
        _ => false,
    }
}

/// A multiple of eight that fits 16 bits when divided by it.
fn is_short(distance: i64) -> bool {
    distance % 8 == 0 && i16::try_from(distance / 8).is_ok()
}

fn saved(
    rule: Option<&RegisterRule<usize>>,
    kept: impl Fn(&UnwindExpression<usize>) -> Result<Vec<u8>, NoRow>,
) -> Result<Saved, NoRow> {
    Ok(match rule {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Saved::Unchanged,
        Some(RegisterRule::Offset(distance)) => Saved::At(bounded(*distance)?),
        Some(RegisterRule::ValOffset(distance)) => Saved::Is(bounded(*distance)?),
        Some(RegisterRule::Expression(expression)) => Saved::AtExpression(kept(expression)?),
        Some(RegisterRule::ValExpression(expression)) => Saved::IsExpression(kept(expression)?),
        Some(RegisterRule::Register(register)) => {
            return Err(NoRow::broken(format!(
                "a register was moved to register {}, which is not known",
                register.0
            )));
        }
        Some(rule) => return Err(NoRow::broken(format!("an unwind rule that is not supported ({rule:?})"))),
    })
}

fn bounded(distance: i64) -> Result<i64, NoRow> {
    if (-MAX_DISTANCE..MAX_DISTANCE).contains(&distance) {
        Ok(distance)
    } else {
        Err(NoRow::broken(format!("damaged unwind information (a frame of {distance} bytes)")))
    }
}

fn keep(section: &EhFrame<Slice<'_>>, expression: &UnwindExpression<usize>) -> Result<Vec<u8>, NoRow> {
    let bytes = expression
        .get(section)
        .map_err(|error| NoRow::broken(format!("damaged unwind information ({error})")))?;
    let bytes = bytes.0.slice();
    if bytes.len() > MAX_EXPRESSION {
        return Err(NoRow::broken(format!("an unwind expression of {} bytes", bytes.len())));
    }
    Ok(bytes.to_vec())
}
