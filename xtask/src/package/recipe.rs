//! The container image's recipe, as far as it can be followed without a container engine.

/// `packaging/container/Containerfile`.
const RECIPE: &str = include_str!("../../../packaging/container/Containerfile");
/// Where the recipe puts what becomes the image.
pub const IMAGE: &str = "image";

/// Keyword and rest of each instruction, in order.
pub fn instructions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = RECIPE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' '))
}

/// What the recipe runs in a system, beside the installation, which is there already.
pub fn commands() -> Vec<&'static str> {
    let runs = instructions().filter(|(keyword, _)| *keyword == "RUN").map(|(_, rest)| rest);
    runs.filter(|command| !command.starts_with("dpkg ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_ends_in_an_image_that_holds_its_copies_only() {
        let known = ["ARG", "FROM", "COPY", "RUN", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
        let unknown: Vec<_> = instructions().filter(|(keyword, _)| !known.contains(keyword)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let all: Vec<_> = instructions().collect();
        let last = all.iter().rposition(|(keyword, _)| *keyword == "FROM").expect("a stage");
        assert_eq!(all[last].1, "scratch");
        assert!(all[last..].contains(&("COPY", "--from=parts /image /")));
        assert!(all[last..].iter().all(|(keyword, _)| *keyword != "RUN"), "an empty image has no shell");
        assert_eq!(commands().len(), 1, "the trial follows what makes the image");
    }

    /// Without a mistake of the kind that only shows in a build: words of a list are JSON.
    #[test]
    fn what_the_image_starts_is_the_program() {
        let list = |wanted| {
            let text = instructions().find(|(keyword, _)| *keyword == wanted).expect("an instruction").1;
            serde_json::from_str::<Vec<String>>(text).expect("a list")
        };
        assert_eq!((list("ENTRYPOINT"), list("CMD")), (vec!["/usr/bin/farshore".to_owned()], vec!["serve".to_owned()]));
    }
}
