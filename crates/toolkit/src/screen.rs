//! What goes to a terminal: colours where they are wanted, and no control characters but ours.

/// Colours, or none.
pub struct Paint {
    on: bool,
}

#[derive(Clone, Copy)]
pub enum Colour {
    Good,
    Busy,
    Bad,
    Head,
}

impl Paint {
    pub fn plain() -> Self {
        Self { on: false }
    }

    pub fn colours() -> Self {
        Self { on: true }
    }

    pub fn with(&self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Good => "32",
            Colour::Busy => "33",
            Colour::Bad => "1;31",
            Colour::Head => "1",
        };
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Reasons may carry what a peer sent: control characters never reach the terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
