"""What an installation owes those whose words it keeps: to look, to reveal, to erase, and to note it."""
