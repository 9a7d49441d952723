//! What is kept, and what is saved first, so that a crash or a lost peer takes nothing away.

pub mod kept;
#[cfg(test)]
mod power_loss_model;
pub mod saving;
