//! All integration tests of this crate as one program: one to be linked.

mod bounds;
mod contradictions;
mod extents_in_two_cells;
mod features;
mod format_doc;
mod fua_waits;
mod left_over_batch;
mod other_volumes;
mod refused;
mod scheduling;
mod stopped_while_starting;
