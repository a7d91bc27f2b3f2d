//! Rows of the unwind table that must be computed: DWARF expressions over the registers and the stack.

use gimli::{Encoding, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};

use super::{
    arch,
    row::{Computed, Place, Saved},
    stack::Missing,
};
use crate::model::Registers;

/// Most operations of one expression: a hostile one may jump backwards for ever.
const MAX_OPERATIONS: u32 = 256;

/// Why a row could not be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Stack memory that is not there.
    Memory(Missing),
    /// The reason, as one clause.
    Rule(String),
}

impl From<Missing> for Failure {
    fn from(missing: Missing) -> Self {
        Self::Memory(missing)
    }
}

/// The caller's registers by `row`.
pub(super) fn step(
    row: &Computed,
    registers: Registers,
    mut read: impl FnMut(u64) -> Result<u64, Missing>,
) -> Result<Registers, Failure> {
    let cfa = match &row.cfa {
        Place::Register(number, distance) => {
            let base = arch::value(&registers, *number).ok_or_else(|| {
                Failure::Rule(format!("the CFA is in register {}, which is not known", number.0))
            })?;
            base.wrapping_add_signed(*distance)
        }
        Place::Expression(bytes) => evaluate(bytes, row.encoding, None, &registers, &mut read)?,
    };
    let mut restore = |saved: &Saved, unchanged: u64| match saved {
        Saved::Unchanged => Ok(unchanged),
        Saved::At(distance) => Ok(read(cfa.wrapping_add_signed(*distance))?),
        Saved::Is(distance) => Ok(cfa.wrapping_add_signed(*distance)),
        Saved::AtExpression(bytes) => {
            let address = evaluate(bytes, row.encoding, Some(cfa), &registers, &mut read)?;
            Ok(read(address)?)
        }
        Saved::IsExpression(bytes) => evaluate(bytes, row.encoding, Some(cfa), &registers, &mut read),
    };
    if row.back == Saved::Unchanged && cfg!(target_arch = "x86_64") {
        return Err(Failure::Rule("the unwind row has no return address".into()));
    }
    let pc = restore(&row.back, registers.lr)?;
    let fp = restore(&row.frame, registers.fp)?;
    let lr = if cfg!(target_arch = "x86_64") { 0 } else { pc };
    Ok(Registers { pc, sp: cfa, fp, lr })
}

fn evaluate(
    bytes: &[u8],
    encoding: Encoding,
    initial: Option<u64>,
    registers: &Registers,
    read: &mut impl FnMut(u64) -> Result<u64, Missing>,
) -> Result<u64, Failure> {
    let damaged =
        |error: gimli::Error| Failure::Rule(format!("an unwind expression that does not evaluate ({error})"));
    let mut evaluation = Evaluation::new(EndianSlice::new(bytes, LittleEndian), encoding);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().map_err(damaged)?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = arch::value(registers, register).ok_or_else(|| {
                    Failure::Rule(format!(
                        "an unwind expression needs register {}, which is not known",
                        register.0
                    ))
                })?;
                evaluation.resume_with_register(Value::Generic(value)).map_err(damaged)?
            }
            EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                evaluation.resume_with_memory(Value::Generic(read(address)?)).map_err(damaged)?
            }
            other => {
                return Err(Failure::Rule(format!("an unwind expression that is not supported ({other:?})")));
            }
        }
    }
    match evaluation.as_result().last().map(|piece| &piece.location) {
        Some(Location::Address { address }) => Ok(*address),
        _ => Err(Failure::Rule("an unwind expression without an address".into())),
    }
}
