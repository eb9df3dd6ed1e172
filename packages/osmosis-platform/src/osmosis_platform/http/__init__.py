"""What every request passes: ids, errors, versions, who asks for which workspace, pages."""
