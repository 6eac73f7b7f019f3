"""The step engine: its residents and iterations (`stage`), the words it can be asked for (`words`), what it reports
(`figures`), and iterations that are alike taken together (`ahead`, `leap`)."""
