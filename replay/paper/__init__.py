"""The paper's figures and tables, made again, with the paper's numbers beside ours."""
