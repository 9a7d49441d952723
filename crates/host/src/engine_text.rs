//! Sentences of the engine, with the names that it does not know.

/// `text` with the group's name for `GROUP`, and each volume's for its position in the order of names.
pub fn with_names<'a>(text: &str, group: &str, volumes: impl IntoIterator<Item = &'a str>) -> String {
    let text = text.replace(" GROUP'", &format!(" {group}'")).replace(" GROUP ", &format!(" {group} "));
    volumes.into_iter().enumerate().fold(text, |text, (index, volume)| {
        let position = format!("volume {} of the group (in the order of names)", index + 1);
        text.replace(&position, &format!("volume {volume}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_as_it_stands_and_a_volume_is_named() {
        let text =
            "volume 2 of the group (in the order of names) is smaller here; 'farshore sync GROUP --full'; /a/GROUP";
        let named = "volume log is smaller here; 'farshore sync db --full'; /a/GROUP";
        assert_eq!(with_names(text, "db", ["data", "log"]), named);
    }
}
