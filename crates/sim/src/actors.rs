//! Who acts in a world: an operator, clients, and faults. Each does it through the world, which knows none of them.

pub mod clients;
mod damage;
pub mod faults;
pub mod operator;
mod other_volumes;
mod policy;
pub mod viewers;

pub use damage::{copies_records, restores_records, rots};
pub use policy::follow_policy;
