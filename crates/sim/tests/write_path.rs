//! The example whose instructions are counted for the [bench](../../../docs/book/bench.md) still does what it says.

#[allow(dead_code)]
#[path = "../examples/write_path.rs"]
mod example;

#[test]
fn each_write_of_the_example_is_answered() {
    example::run(100);
}
